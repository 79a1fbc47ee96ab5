"""Repositories behind https: git's own server program behind TLS on this machine, with a certificate of our own."""

import base64
import http.server
import os
import shutil
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from loadgen.corpus.clone import clone
from loadgen.errors import InputError

SERVER = Path(subprocess.run(["git", "--exec-path"], capture_output=True, text=True).stdout.strip()) / "git-http-backend"  # fmt: skip

pytestmark = pytest.mark.skipif(
    not (SERVER.is_file() and shutil.which("openssl")), reason="needs git-http-backend and openssl"
)


class Handler(http.server.BaseHTTPRequestHandler):
    """One request of git's smart protocol, handed to its CGI program; with a password where the path asks for one."""

    def do_GET(self):
        path, _, query = self.path.partition("?")
        self.server.seen.append(path)
        if path.startswith("/private/") and self.headers.get("Authorization") != self.server.password:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self._body()
        done = subprocess.run(
            [str(SERVER)],
            input=body,
            capture_output=True,
            check=False,
            env=os.environ
            | {
                "GIT_PROJECT_ROOT": str(self.server.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path.removeprefix("/private"),
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            },
        )
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest)

    do_POST = do_GET

    def _body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path, repository, git, monkeypatch):
    """URL of a server that has `repository` as x.git."""
    git(repository, "clone", "-q", "--bare", ".", str(tmp_path / "x.git"))
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.root, server.seen = tmp_path, []
    server.password = "Basic " + base64.b64encode(b"me:secret").decode()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("GIT_SSL_CAINFO", str(certificate))
    monkeypatch.setenv("LOADGEN_CACHE", str(tmp_path / "cache"))
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield server, f"https://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_repository_behind_https(served, repository, git):
    server, url = served
    head, first = git(repository, "rev-parse", "HEAD"), git(repository, "rev-parse", "HEAD~1")
    found = clone(f"{url}/x.git", None)
    assert (found.commit, len(found.entries)) == (head, len(clone(f"file://{repository}", None).entries))
    assert clone(f"{url}/x.git", first[:10]).commit == first
    asked = len(server.seen)
    assert clone(f"{url}/x.git", head).commit == head
    assert len(server.seen) == asked, "a full commit id that is in the cache needs no network"


def test_a_password_goes_to_the_server_and_nowhere_else(served, repository, git, tmp_path):
    _, url = served
    found = clone(url.replace("https://", "https://me:secret@") + "/private/x.git", None)
    assert found.commit == git(repository, "rev-parse", "HEAD")
    assert found.entries
    kept = [
        path for path in (tmp_path / "cache").rglob("*") if path.is_file() and b"secret" in path.read_bytes()
    ]
    assert kept == []
    with pytest.raises(InputError, match="cannot be cloned") as refused:
        clone(url.replace("https://", "https://me:wrong@") + "/private/x.git", None)
    assert "wrong" not in str(refused.value)


def test_what_https_can_refuse(served, monkeypatch):
    _, url = served
    with pytest.raises(InputError, match=r"nothing\.git cannot be cloned"):
        clone(f"{url}/nothing.git", None)
    with pytest.raises(InputError, match=r"has no revision|cannot be cloned"):
        clone(f"{url}/x.git", "no-such-branch")
    monkeypatch.delenv("GIT_SSL_CAINFO")
    with pytest.raises(InputError, match="cannot be cloned"):
        clone(f"{url}/x.git", "main")
