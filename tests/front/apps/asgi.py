# ASGI: the path is decoded by the server; the application takes it with and without a slash at its end.
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    path = scope["path"].rstrip("/")
    guarded = path in ("/admin", "/vault") or path.startswith("/admin/")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"the treasure" if guarded else b"open"})
