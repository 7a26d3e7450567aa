"""Fault-injecting proxy between a client and the server. It speaks plain HTTP to the client and TLS to the server; forwarded
requests and responses are unchanged, so that signatures stay valid.

`plan` lists the faults for the requests that `matches` selects, in order; later requests are forwarded without a fault."""

import http.client
import socket
import ssl
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import files_env as env

# The request never reaches the server.
REFUSE_500, REFUSE_503 = "500", "503"
CUT_REQUEST = "the connection ends in the middle of the request's body"
# The server has executed the request.
LOSE_RESPONSE = "the connection ends before the response"
RESPOND_500 = "500 instead of the response"
CUT_RESPONSE = "the connection ends in the middle of the response's body"


class FaultProxy:
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
        return f"http://127.0.0.1:{self.server.server_address[1]}/{env.ACCOUNT}"

    def fault_for(self, request):
        with self.lock:
            fault = self.plan.pop(0) if self.plan and self.matches(request) else None
            self.seen.append((request.command, request.path, fault))
            return fault


def _handler(proxy):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self):
            fault = proxy.fault_for(self)
            length = int(self.headers.get("Content-Length") or 0)
            if fault == CUT_REQUEST:
                self.send_half_a_request(length)
                return self.reset()
            body = self.rfile.read(length)
            if fault in (REFUSE_500, REFUSE_503):
                return self.refuse(int(fault))
            response, content = self.forward(body)
            if fault == LOSE_RESPONSE:
                return self.reset()
            if fault == RESPOND_500:
                return self.refuse(500)
            self.send(response, content, cut=fault == CUT_RESPONSE)

        do_GET = do_HEAD = do_PUT = do_DELETE = serve

        def forward(self, body):
            context = ssl.create_default_context(cafile=env.CA)
            server = http.client.HTTPSConnection("127.0.0.1", env.PORT, context=context, timeout=60)
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                server.putheader(name, value)
            server.endheaders(body or None)
            response = server.getresponse()
            content = response.read()
            server.close()
            return response, content

        def send_half_a_request(self, length):
            """Forwards half of the body, then closes both connections."""
            context = ssl.create_default_context(cafile=env.CA)
            server = http.client.HTTPSConnection("127.0.0.1", env.PORT, context=context, timeout=60)
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

        def send(self, response, content, cut):
            self.send_response_only(response.status, response.reason)
            for name, value in response.getheaders():
                if name.lower() not in ("connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.end_headers()
            if not cut:
                return self.wfile.write(content)
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.reset()

        def reset(self):
            """Closes the connection with a TCP reset."""
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
