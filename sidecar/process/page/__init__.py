"""The page at the admin endpoint: markup, style and script, as they are served. docs/admin.md."""
