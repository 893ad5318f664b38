"""An OpenAI-compatible server around the engine that you built in lesson 25, for one machine: http://127.0.0.1.

    python -m given.server [FOLDER] [--port 8000]        (or: make serve)

FOLDER holds a checkpoint as lesson 16 reads them; without it, the pocket model is served. One thread has the engine and
does nothing but steps; everything else happens in the web server's event loop, which hands requests to that thread and
gets tokens back. It needs fastapi and uvicorn: pip install -r requirements-serve.txt
"""

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from given.engine_thread import EngineThread, Refused, Text

POCKET = Path(__file__).resolve().parent.parent / "assets/pocket"
MOST_BYTES = 1_000_000              # of a request's body
MOST_UNFINISHED = 256               # requests that run or wait; one more is told to come back
Short = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class Asked(BaseModel):
    """What both ways of asking have. A field that is not listed is refused by name: silence would mean another text."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)
    model: str
    max_tokens: int = Field(16, ge=1)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int | None = Field(None, ge=-2**63, lt=2**63)
    stop: Short | Annotated[list[Short], Field(max_length=4)] | None = None
    stream: bool = False
    stream_options: dict[str, bool] | None = None
    n: int = Field(1, ge=1, le=1)
    user: str | None = None


class AskedText(Asked):
    """What /v1/completions takes: a text, or its ids."""

    prompt: str | list[int]


class Message(BaseModel):
    """What somebody said."""

    model_config = ConfigDict(extra="forbid", strict=True)
    role: str
    content: str


class AskedChat(Asked):
    """What /v1/chat/completions takes, for models that have a chat template."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: int = Field(16, ge=1, validation_alias=AliasChoices("max_completion_tokens", "max_tokens"))


def create_app(serving: Any, engine: Any, tokenizer: Any, name: str, stop: frozenset[int] = frozenset(),
               render: Callable[[list[dict]], str] | None = None, most_unfinished: int = MOST_UNFINISHED) -> FastAPI:
    """The web application.

    serving: the module of lesson 25, for its Request and Sampling. stop: tokens that end a text. render: makes one
    text of a chat, up to where the model goes on; None where the model knows no chats.
    """
    numbers, worker = itertools.count(), EngineThread(engine, most_unfinished)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        worker.start()
        yield
        worker.end()

    app = FastAPI(title=name, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.worker = worker
    app.add_middleware(SmallBodies)
    # a web page whose own name leads to this machine is not let in
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        return JSONResponse(error.answer(), error.status, {"Retry-After": "1"} if error.status == 503 else None)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        last = error.errors()[-1]
        field = next((part for part in last["loc"][1:] if isinstance(part, str)), None)
        return JSONResponse(Refused(400, f"{field or 'the body'}: {last['msg']}", field).answer(), 400)

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse(Refused(error.status_code, str(error.detail)).answer(), error.status_code)

    @app.get("/health")
    async def health() -> dict[str, int]:
        """What the engine holds: of an idle server, no request and no block."""
        return await worker.call(lambda: {
            "running": len(engine.scheduler.running), "waiting": len(engine.scheduler.waiting),
            "blocks": len(engine.cache.allocator.counts),
            "blocks_held": sum(count > 0 for count in engine.cache.allocator.counts)})

    @app.get("/v1/models")
    async def models() -> dict:
        return {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "you"}]}

    async def as_request(asked: Asked, prompt: str | list[int]) -> Any:
        """What the engine takes, or a Refused that names the field."""
        if asked.model != name:
            raise Refused(404, f"the model {asked.model!r} is not served here, {name!r} is", "model")
        if isinstance(prompt, str):
            prompt = await asyncio.to_thread(tokenizer.encode, prompt)      # others are served meanwhile
        number = next(numbers)
        with naming_fields():
            sampling = serving.Sampling(temperature=asked.temperature, top_p=asked.top_p if asked.top_p < 1 else None)
            return serving.Request(id=number, prompt=tuple(prompt), max_new_tokens=asked.max_tokens, stop=stop,
                                   seed=number if asked.seed is None else asked.seed, sampling=sampling)

    async def pieces(asked: Asked, request: Any) -> AsyncIterator[tuple[str, str | None, int]]:
        """(new text, why it ended or None, how many tokens so far), until it ended."""
        stops = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
        text, count = Text(tokenizer, stops), 0
        with naming_fields():
            async with worker.serving(request) as outputs:
                why = None
                while not why:
                    output = await outputs.get()
                    if isinstance(output, Refused):
                        raise output
                    if output.finished == "error":
                        raise Refused(400, f"with this temperature and top_p no token can be chosen: {output.error}")
                    count += output.token is not None
                    new = text.push(output.token, bool(output.finished))
                    why = "stop" if text.stopped else output.finished
                    yield new, why, count

    async def answer(asked: Asked, prompt: str | list[int], http: Request, prefix: str, kind: str, chunk: str,
                     choice: Callable[[str, bool], dict]) -> Any:
        """The answer in one piece or as a stream. choice: (text, whether it is a part) → a choice's own fields."""
        request = await as_request(asked, prompt)
        parts = pieces(asked, request)

        def about(kind: str, choices: list[dict], count: int | None = None) -> dict:
            tokens = {} if count is None else {"usage": {
                "prompt_tokens": len(request.prompt), "completion_tokens": count,
                "total_tokens": len(request.prompt) + count}}
            return {"id": f"{prefix}-{request.id}", "object": kind, "created": int(time.time()), "model": name,
                    "choices": choices, **tokens}

        def chosen(text: str, why: str | None, part: bool) -> list[dict]:
            return [{"index": 0, "finish_reason": why, "logprobs": None, **choice(text, part)}]

        async def events(first: tuple) -> AsyncIterator[str]:
            """Server-sent events. Once they have begun, an error can only be one of them."""
            try:
                new, why, count = first
                yield event(about(chunk, chosen(new, why, True)))
                async for part in parts:
                    new, why, count = part
                    if new or why:
                        yield event(about(chunk, chosen(new, why, True)))
                if (asked.stream_options or {}).get("include_usage"):
                    yield event(about(chunk, [], count))
                yield "data: [DONE]\n\n"
            except Refused as error:
                yield event(error.answer())
            finally:
                await parts.aclose()

        async def whole() -> list[tuple]:
            return [part async for part in parts]
        if asked.stream:        # what is refused is refused with a status: so the first piece before the answer
            return StreamingResponse(events(await unless_gone(http, anext(parts))), media_type="text/event-stream")
        got = await unless_gone(http, whole())
        text, (_, why, count) = "".join(new for new, _, _ in got), got[-1]
        return about(kind, chosen(text, why, False), count)

    @app.post("/v1/completions")
    async def completions(asked: AskedText, http: Request) -> Any:
        return await answer(asked, asked.prompt, http, "cmpl", "text_completion", "text_completion",
                            lambda text, part: {"text": text})

    @app.post("/v1/chat/completions")
    async def chat(asked: AskedChat, http: Request) -> Any:
        if render is None:
            raise Refused(400, f"{name!r} has no chat template: it continues texts, at /v1/completions", "messages")
        try:
            prompt = render([message.model_dump() for message in asked.messages])
        except ValueError as error:
            raise Refused(400, str(error), "messages") from error
        return await answer(asked, prompt, http, "chatcmpl", "chat.completion", "chat.completion.chunk",
                            lambda text, part: {"delta" if part else "message": {"role": "assistant", "content": text}})

    return app


def event(what: dict) -> str:
    """One server-sent event."""
    return f"data: {json.dumps(what)}\n\n"


class naming_fields:
    """A ValueError of the engine, whose message begins with the argument's name, is an answer 400 about that field."""

    NAMES = {"max_new_tokens": "max_tokens"}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, _: Any) -> None:
        if isinstance(error, ValueError):
            words = str(error)
            field = words.replace(":", " ").split(maxsplit=1)[0] if words else ""
            name = self.NAMES.get(field, field)
            known = name in AskedText.model_fields
            raise Refused(400, words.replace(field, name, 1) if known else words, name if known else None) from error


async def unless_gone(http: Request, work: Any) -> Any:
    """What the work returns; where the client goes away before, it is cancelled, and so are its requests."""
    async def gone() -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass
    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refused(499, "the client has gone")
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


class SmallBodies:
    """Answers 413 to a body of more than MOST_BYTES, and reads no more of it than that."""

    def __init__(self, app: Any):
        self.app = app

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        """What ASGI calls for each request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        body, more = b"", scope["method"] == "POST"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body, more = body + message.get("body", b""), message.get("more_body", False)
            if len(body) > MOST_BYTES:
                too_large = Refused(413, f"a request's body may have {MOST_BYTES:,} bytes")
                return await JSONResponse(too_large.answer(), 413, {"Connection": "close"})(scope, receive, send)
        whole = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def read() -> dict:
            return next(whole, None) or await receive()
        return await self.app(scope, read, send)


def read(path: Path) -> dict:
    """A file of JSON that a checkpoint may lack."""
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m given.server", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=POCKET, help="a checkpoint; else the pocket model")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--blocks", type=int, default=512, help="how many blocks the cache lends")
    parser.add_argument("--block-size", type=int, default=16, help="positions in a block")
    parser.add_argument("--budget", type=int, default=256, help="tokens that a step computes at most")
    parser.add_argument("--most", type=int, default=32, help="requests that run at once")
    asked = parser.parse_args()

    import torch
    import uvicorn

    from exercises import ex25_serving as serving
    from exercises.ex16_pretrained import load_pretrained, load_tokenizer
    from exercises.ex20_fine_tuning import render_chat
    from given.torch_kernels import use_torch_kernels
    torch.set_num_threads(1)        # the web server needs a core, too, and a step's matrices are small
    try:
        model = use_torch_kernels(load_pretrained(asked.folder, dtype=torch.float32))
        tokenizer = load_tokenizer(asked.folder)
        engine = serving.Engine(model, asked.blocks, asked.block_size, asked.budget, asked.most)
    except (ValueError, OSError) as error:
        sys.exit(f"{asked.folder} cannot be served: {error}")
    name, config = asked.folder.resolve().name, read(asked.folder / "config.json")
    end = config.get("eos_token_id")
    stop = frozenset(end if isinstance(end, list) else [] if end is None else [end])
    about = read(asked.folder / "tokenizer_config.json")
    render = partial(render_chat, template=about["chat_template"], add_generation_prompt=True, **{
        name: about[name] for name in ("bos_token", "eos_token") if isinstance(about.get(name), str)}) \
        if "chat_template" in about else None
    print(f"The model {name!r} is served at http://127.0.0.1:{asked.port}/v1 (Ctrl-C ends it). Try:\n"
          f"curl http://127.0.0.1:{asked.port}/v1/completions -H 'Content-Type: application/json' "
          f"""-d '{{"model": "{name}", "prompt": "The for statement", "max_tokens": 40}}'""", flush=True)
    app = create_app(serving, engine, tokenizer, name, stop, render)

    class Server(uvicorn.Server):
        """Ctrl-C ends what is being served, too."""

        def handle_exit(self, sig: int, frame: Any) -> None:
            app.state.worker.end()
            super().handle_exit(sig, frame)
    with suppress(KeyboardInterrupt):       # which comes again when all is ended
        Server(uvicorn.Config(app, host="127.0.0.1", port=asked.port, log_level="warning",
                              timeout_graceful_shutdown=5)).run()


if __name__ == "__main__":
    main()
