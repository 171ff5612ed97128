"""The page at the admin endpoint: markup, style and script, as they are served. docs/operate/admin.md."""
