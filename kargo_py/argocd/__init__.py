"""One Argo CD Application seen from outside: what we read of it, and every decision about its operations."""
