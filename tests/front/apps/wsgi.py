# WSGI: PATH_INFO is decoded by the server; the application normalises it.
import os, posixpath
from wsgiref.simple_server import WSGIRequestHandler, make_server

def app(environ, start):
    path = posixpath.normpath(environ["PATH_INFO"].replace("//", "/"))
    start("200 OK", [("Content-Type", "text/plain")])
    return [b"the treasure" if path in ("/admin", "/vault") or path.startswith("/admin/") else b"open"]

class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass

if __name__ == "__main__":
    make_server("127.0.0.1", int(os.environ["PORT"]), app, handler_class=Quiet).serve_forever()
