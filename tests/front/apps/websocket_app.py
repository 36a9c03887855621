# A WebSocket application. By path: /ws/echo sends back what it gets; /ws/seen sends the fields of the request that
# it saw; /ws/bye ends with 4001 after the first message; /ws/refused is answered 403.
import asyncio, json, os, ssl
from http import HTTPStatus
import websockets

async def serve(socket):
    if socket.path == "/ws/seen":
        await socket.send(json.dumps([[name.lower(), value] for name, value in socket.request_headers.raw_items()]))
    async for message in socket:
        await socket.send(message)
        if socket.path == "/ws/bye":
            await socket.close(4001, "bye")

async def decide(path, headers):
    if path == "/ws/refused":
        return HTTPStatus.FORBIDDEN, [("X-Why", "not today")], b"refused"

async def main():
    context = None
    if "CERTIFICATE" in os.environ:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(os.environ["CERTIFICATE"], os.environ["KEY"])
    async with websockets.serve(serve, "127.0.0.1", int(os.environ["PORT"]), process_request=decide, ssl=context,
                                max_size=None, subprotocols=["chat", "echo"]):
        await asyncio.Future()

asyncio.run(main())
