"""The controllers: they turn cache events into decisions and write what those say."""
