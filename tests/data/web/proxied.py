"""A client of a server behind a proxy with TLS. Usage: proxied.py PORT HOST CERTIFICATE TOKEN.

It knows the server under the name of the proxy alone, as a browser does."""

import json
import socket
import ssl
import sys
from http.client import HTTPResponse

PORT, HOST, CERTIFICATE, TOKEN = sys.argv[1:]


def send(method: str, path: str, headers: dict[str, str], body: str = "") -> HTTPResponse:
    context = ssl.create_default_context(cafile=CERTIFICATE)
    stream = socket.create_connection(("127.0.0.1", int(PORT)), timeout=60)
    stream = context.wrap_socket(stream, server_hostname=HOST)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    stream.sendall(("\r\n".join(lines) + "\r\n\r\n" + body).encode())
    answer = HTTPResponse(stream, method=method)
    answer.begin()
    return answer


def main() -> None:
    origin = {"Origin": f"https://{HOST}", "Content-Type": "application/json"}
    # A page of the proxy's name may log in, and gets a cookie for TLS alone.
    session = send("POST", "/api/session", origin, json.dumps({"token": TOKEN}))
    assert session.status == 204, (session.status, session.read())
    cookie = session.headers["Set-Cookie"]
    assert cookie.startswith("__Host-") and "; Secure" in cookie, cookie
    assert "max-age" in session.headers["Strict-Transport-Security"]
    page = {"Cookie": cookie.split(";")[0], **origin}
    # One of another site, and one whose page came without TLS, may not.
    for other in ["https://evil.example", f"http://{HOST}"]:
        refused = send("POST", "/api/v1/runs", {**page, "Origin": other}, '{"text":"go"}')
        assert refused.status == 403, (other, refused.status)
    started = send("POST", "/api/v1/runs", page, '{"text":"go"}')
    assert started.status == 201, (started.status, started.read())
    run = json.loads(started.read())["run"]
    # Events arrive while the stream is open: a proxy that buffers would hold back such small ones.
    events = send("GET", f"/api/v1/runs/{run}/events", {"Cookie": page["Cookie"]})
    assert events.status == 200, events.status
    first = until(events, "room-opened")
    assert first, "the beginning of the run"
    said = send("POST", f"/api/v1/runs/{run}/messages", page, '{"text":"through the proxy"}')
    assert said.status == 200, (said.status, said.read())
    until(events, "through the proxy")
    # The page itself, with its own links.
    html = send("GET", "/runs", {"Cookie": page["Cookie"]})
    assert html.status == 200 and run in html.read().decode(), html.status


def until(events: HTTPResponse, text: str) -> str:
    while True:
        line = events.readline().decode()
        assert line, f"the stream ended before {text}"
        if text in line:
            return line


main()
