"""Starting, watching and stopping work that another controller does; one module per tool."""
