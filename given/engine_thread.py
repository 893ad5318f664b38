"""One thread that has the engine, and text that is certain: what lesson 25's server is made of besides the web."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any


class Refused(Exception):
    """An answer that says what was wrong: its status in HTTP, a sentence, and the field that it is about."""

    def __init__(self, status: int, message: str, param: str | None = None):
        self.status, self.message, self.param = status, message, param

    def answer(self) -> dict:
        """As OpenAI's clients read it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": None}}


class EngineThread(threading.Thread):
    """The one thread that touches the engine: it takes requests in, steps while there are any, and hands tokens out."""

    def __init__(self, engine: Any, most_unfinished: int):
        super().__init__(name="engine", daemon=True)
        self.engine, self.most_unfinished = engine, most_unfinished
        self.inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.listeners: dict[int, Callable[[Any], None]] = {}

    def run(self) -> None:
        """Until it is told to end. A step that fails ends the requests that are there, and the thread goes on."""
        while self._take_in(wait=not self.engine.unfinished):
            try:
                outputs = self.engine.step()
            except Exception as error:
                self._drop_all(Refused(500, f"the model failed: {type(error).__name__}: {error}"))
                continue
            for output in outputs:
                self.listeners[output.id](output)
                if output.finished:
                    del self.listeners[output.id]
        self._drop_all(Refused(503, "the server is ending"))

    def end(self) -> None:
        """Let the thread end after its step, and tell whoever is being served. A signal's handler may call it."""
        self.inbox.put(None)

    def _drop_all(self, error: Refused) -> None:
        for id in list(self.listeners):
            self.engine.cancel(id)
            self.listeners.pop(id)(error)

    def _take_in(self, wait: bool) -> bool:
        """Do what came in, waiting for it where there is nothing else to do. False: it is time to end."""
        while True:
            try:
                task = self.inbox.get(block=wait)
            except queue.Empty:
                return True
            if task is None:
                return False
            task()
            wait = not self.engine.unfinished

    async def call(self, function: Callable[[], Any]) -> Any:
        """What the function returns or raises, called in this thread, between two steps."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def tell(how: Callable, what: Any) -> None:
            loop.call_soon_threadsafe(lambda: done.cancelled() or how(what))

        def task() -> None:
            try:
                tell(done.set_result, function())
            except Exception as error:
                tell(done.set_exception, error)
        self.inbox.put(task)
        return await done

    @asynccontextmanager
    async def serving(self, request: Any) -> AsyncIterator[asyncio.Queue]:
        """A queue of what this request gets, or a Refused. Whoever leaves before its end has cancelled it."""
        loop, outputs = asyncio.get_running_loop(), asyncio.Queue()

        def add() -> None:
            if self.engine.unfinished >= self.most_unfinished:
                raise Refused(503, f"{self.most_unfinished} requests are being served or wait: try again later")
            self.engine.add(request)
            self.listeners[request.id] = lambda output: loop.call_soon_threadsafe(outputs.put_nowait, output)

        def cancel() -> None:
            self.engine.cancel(request.id)
            self.listeners.pop(request.id, None)
        try:
            await self.call(add)
            yield outputs
        finally:
            self.inbox.put(cancel)      # of what is finished, or was refused, nothing is left to cancel


class Text:
    """New tokens as text, as far as it is certain: no half character, and nothing that may become a stop string."""

    def __init__(self, tokenizer: Any, stops: list[str]):
        self.tokenizer, self.stops = tokenizer, stops
        self.ids: list[int] = []
        self.sent, self.stopped = 0, False

    def push(self, id: int | None, last: bool = False) -> str:
        """One token more, or none: the text that is certain by now and was not given out before."""
        if id is not None:
            self.ids.append(id)
        text = self.tokenizer.decode(self.ids)
        found = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        if found:
            self.stopped, text = True, text[:min(found)]
        elif not last:
            text = text.rstrip("\N{REPLACEMENT CHARACTER}")
            begun = [n for stop in self.stops for n in range(1, len(stop)) if text.endswith(stop[:n])]
            text = text[:len(text) - max(begun, default=0)]
        new, self.sent = text[self.sent:], max(self.sent, len(text))
        return new
