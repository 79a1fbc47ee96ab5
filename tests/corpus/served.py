"""A server that tokenizes with Tekken and renders with a template of the test's choice."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from loadgen import tokens

TEKKEN = tokens.get("tekken")
SPECIAL = {"bos": 1, "user": 3, "end": 4, "tools": 5, "call": 9, "result": 7, "system": 17}


def plain(messages, tools):
    """Everything in order, nothing changed."""
    ids = [SPECIAL["bos"]]
    if tools:
        ids += [SPECIAL["tools"], *TEKKEN.encode(json.dumps(tools)), SPECIAL["end"]]
    for message in messages:
        ids += [SPECIAL[{"assistant": "end", "tool": "result"}.get(message["role"], message["role"])]]
        ids += TEKKEN.encode(message["content"].strip())
        for call in message.get("tool_calls", ()):
            ids += [SPECIAL["call"], *TEKKEN.encode(json.dumps(call["function"]))]
    return [*ids, SPECIAL["end"]]


def tools_late(messages, tools):
    """Tools in front of the last user message, as old Mistral templates have them."""
    last = max(place for place, message in enumerate(messages) if message["role"] == "user")
    early = plain(messages[:last], None)[:-1]
    return early + plain(messages[last:], tools)[1:]


def words_around(messages, tools):
    """A template of plain text, whose tokens may merge with the contents'."""
    text = "".join(
        f"### {m['role']}: {m['content'].strip()}{json.dumps(m.get('tool_calls', ''))}\n" for m in messages
    )
    return TEKKEN.encode(f"Tools: {json.dumps(tools)}\n{text}### assistant:")


@contextmanager
def endpoint(render=plain, *, encode=TEKKEN.encode, models=("m",), seen=None):
    """URL of a running server. `seen` collects (path, body, headers) of every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._answer(200, {"data": [{"id": model} for model in models]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if seen is not None:
                seen.append((self.path, body, dict(self.headers)))
            if self.path == "/tokenize" and "messages" in body:
                self._answer(200, {"tokens": render(body["messages"], body.get("tools"))})
            elif self.path == "/tokenize":
                ids = encode(body["prompt"])
                self._answer(200, {"tokens": [SPECIAL["bos"], *ids] if body["add_special_tokens"] else ids})
            elif self.path == "/detokenize":
                self._answer(200, {"prompt": TEKKEN.decode(body["tokens"])})
            else:
                self._answer(404, {"error": "no such path"})

        def _answer(self, status, value):
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
