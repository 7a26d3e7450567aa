"""A proxy that stands between a client and the server and breaks what passes, as networks and servers in trouble do. It
speaks plain HTTP to the client and TLS to the server; what it forwards, it forwards unchanged, so signatures hold.

`plan` says what happens to the requests that `matches` picks, in their order; when it is used up, all is well."""

import http.client
import socket
import ssl
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import files_place as place

# The request never reaches the server.
REFUSE_500, REFUSE_503 = "500", "503"
CUT_REQUEST = "the connection ends in the middle of the request's body"
# The server has executed the request.
LOSE_ANSWER = "the connection ends before the answer"
ANSWER_500 = "500 instead of the answer"
CUT_ANSWER = "the connection ends in the middle of the answer's body"


class Faulty:
    def __init__(self, plan, matches):
        self.plan = list(plan)
        self.matches = matches
        # (method, path with query, fault or None) of every request.
        self.seen = []
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/{place.ACCOUNT}"

    def fault_for(self, request):
        with self.lock:
            fault = self.plan.pop(0) if self.plan and self.matches(request) else None
            self.seen.append((request.command, request.path, fault))
            return fault


def _handler(faulty):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self):
            fault = faulty.fault_for(self)
            length = int(self.headers.get("Content-Length") or 0)
            if fault == CUT_REQUEST:
                self.send_half_a_request(length)
                return self.reset()
            body = self.rfile.read(length)
            if fault in (REFUSE_500, REFUSE_503):
                return self.refuse(int(fault))
            answer, content = self.forward(body)
            if fault == LOSE_ANSWER:
                return self.reset()
            if fault == ANSWER_500:
                return self.refuse(500)
            self.give(answer, content, cut=fault == CUT_ANSWER)

        do_GET = do_HEAD = do_PUT = do_DELETE = serve

        def forward(self, body):
            context = ssl.create_default_context(cafile=place.CA)
            server = http.client.HTTPSConnection("127.0.0.1", place.PORT, context=context, timeout=60)
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                server.putheader(name, value)
            server.endheaders(body or None)
            answer = server.getresponse()
            content = answer.read()
            server.close()
            return answer, content

        def send_half_a_request(self, length):
            """Half of the body comes from the client and goes to the server, then both ends are gone."""
            context = ssl.create_default_context(cafile=place.CA)
            server = http.client.HTTPSConnection("127.0.0.1", place.PORT, context=context, timeout=60)
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                server.putheader(name, value)
            server.endheaders(self.rfile.read(length // 2))
            server.close()

        def refuse(self, status):
            code = "InternalError" if status == 500 else "ServerBusy"
            text = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>broken</Message></Error>'
            self.send_response(status)
            self.send_header("x-ms-error-code", code)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text.encode())

        def give(self, answer, content, cut):
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.end_headers()
            if not cut:
                return self.wfile.write(content)
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.reset()

        def reset(self):
            """Ends the connection with a reset, not in order."""
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

        def log_message(self, *_):
            pass

        def handle(self):
            try:
                super().handle()
            except (ConnectionError, ValueError, OSError):
                pass  # broken by us, or given up by the client

    return Handler
