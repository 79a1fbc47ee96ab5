"""HTTP and server-sent events with kernel time stamps; one file an API.

`target`, `exchange`, `sse`, `decoder` and the API modules do no input or output and import no gevent: bytes and
stamps go in, an `Exchange` comes out. `channel`, `connection` and `fetch` move the bytes inside gevent's hub.
"""
