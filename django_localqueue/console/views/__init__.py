"""The console's pages and actions."""
