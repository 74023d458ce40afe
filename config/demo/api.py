"""The API of `make demo`: responds with JSON after the time that `?wait=20ms` asks for."""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        wait = parse_qs(urlsplit(self.path).query).get("wait", ["0ms"])[0]
        time.sleep(min(int(wait.removesuffix("ms")), 1000) / 1000)
        body = b'{"status": "ok"}\n'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
