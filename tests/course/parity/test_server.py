"""Chapter 25's server, asked as its users ask: by the openai client, by many at once, badly, and by some who leave."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import openai
import pytest
import torch
import uvicorn

from given import server
from given.torch_kernels import use_torch_kernels
from grader.course import chapters
from solutions import ex25_serving as serving
from solutions.ex13_transformer import ModelConfig, Transformer
from solutions.ex15_generation import generate
from solutions.ex16_pretrained import load_pretrained, load_tokenizer

WINDOW = 128
CONFIG = ModelConfig(vocab_size=4096, d_model=16, layers=1, heads=2, kv_heads=1, d_ff=16, max_seq_len=WINDOW)
STOP = 7


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(server.POCKET)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Transformer(CONFIG).eval()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def running(app):
    """The application on a port of this machine, in a thread: its address."""
    web = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=free_port(), log_level="error",
                                        timeout_graceful_shutdown=1))
    thread = threading.Thread(target=web.run)
    thread.start()
    try:
        until(lambda: web.started)
        yield f"http://127.0.0.1:{web.config.port}"
    finally:
        web.should_exit = True
        thread.join()


def until(true, seconds=20):
    """Wait for something to be true, and fail where it does not become so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def app_of(model, tokenizer, blocks=64, most_unfinished=256, render=None, engine=None, **how):
    engine = engine or serving.Engine(model, blocks, block_size=4, **how)
    return server.create_app(serving, engine, tokenizer, "tiny", frozenset([STOP]), render, most_unfinished)


@pytest.fixture(scope="module")
def address(model, tokenizer):
    with running(app_of(model, tokenizer)) as address:
        yield address


@pytest.fixture
def client(address):
    yield client_of(address)
    assert idle(address)


def client_of(address):
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def health(address):
    return httpx.get(f"{address}/health").json()


def idle(address):
    """Whether, within a while, nothing runs, nothing waits and no block is held."""
    until(lambda: [health(address)[what] for what in ("running", "waiting", "blocks_held")] == [0, 0, 0])
    return True


def alone(model, tokenizer, prompt, n, seed=0, **sampling):
    """What chapter 15's generate writes for this prompt alone."""
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    [new] = generate(model, [ids], n, [STOP], torch.Generator().manual_seed(seed), **sampling)
    return tokenizer.decode(new)


# -- as it is meant

def test_the_openai_client_streams_what_generate_writes(client, model, tokenizer):
    for seed, temperature, top_p in [(0, 0.0, 1.0), (1, 1.0, 1.0), (2, 0.7, 0.9)]:
        how = {"model": "tiny", "prompt": "The for statement", "max_tokens": 20, "seed": seed,
               "temperature": temperature, "top_p": top_p}
        expected = alone(model, tokenizer, "The for statement", 20, seed, temperature=temperature,
                         **({"top_p": top_p} if top_p < 1 else {}))
        whole = client.completions.create(**how)
        assert whole.choices[0].text == expected
        assert whole.usage.prompt_tokens == 3 and whole.usage.completion_tokens <= 20
        *parts, last = client.completions.create(**how, stream=True, stream_options={"include_usage": True})
        assert "".join(part.choices[0].text for part in parts) == expected
        assert len(parts) > 5 and [bool(part.choices[0].finish_reason) for part in parts[-2:]] == [False, True]
        assert last.usage == whole.usage


def test_ids_are_a_prompt_too(client, model, tokenizer):
    answer = client.completions.create(model="tiny", prompt=[5, 6, 8], max_tokens=9, temperature=0)
    assert answer.choices[0].text == alone(model, tokenizer, [5, 6, 8], 9, temperature=0)


def test_forty_at_once_get_each_their_own(address, model, tokenizer):
    """Of different lengths, with half of the beginning in common, and more than the cache holds at once."""
    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(client.completions.create(
                model="tiny", prompt=[*range(20, 40), i, *range(i)], max_tokens=30, seed=i) for i in range(40)))
    answers = asyncio.run(all_of_them())
    for i, answer in enumerate(answers):
        assert answer.choices[0].text == alone(model, tokenizer, [*range(20, 40), i, *range(i)], 30, seed=i)
    assert idle(address)


def test_stop_strings_end_a_text_before_them(client, model, tokenizer):
    text = alone(model, tokenizer, "def", 40, temperature=0)
    stop = text[len(text) // 2:len(text) // 2 + 3]
    how = {"model": "tiny", "prompt": "def", "max_tokens": 40, "temperature": 0, "stop": ["never so", stop]}
    answer = client.completions.create(**how).choices[0]
    assert (answer.text, answer.finish_reason) == (text[:text.index(stop)], "stop")
    assert "".join(part.choices[0].text for part in client.completions.create(**how, stream=True)) == answer.text


def test_a_text_is_given_out_only_as_far_as_it_is_certain(tokenizer):
    ids = tokenizer.encode("a é 漢字 end")
    for stops in ([], ["never"], [" e"]):
        text = server.Text(tokenizer, stops)
        parts = [text.push(id, id is ids[-1]) for id in ids]
        whole = "a é 漢字 end"
        assert "".join(parts) == (whole[:whole.index(" e")] if " e" in stops else whole)
        assert "\N{REPLACEMENT CHARACTER}" not in "".join(parts)


def test_chats_by_the_models_own_template(model, tokenizer, address):
    def render(messages):
        return "".join(f"<{message['role']}>{message['content']}" for message in messages) + "<assistant>"
    with running(app_of(model, tokenizer, render=render)) as other:
        how = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0,
               "max_completion_tokens": 9}
        expected = alone(model, tokenizer, "<user>Hello<assistant>", 9, temperature=0)
        chats = client_of(other).chat.completions
        answer = chats.create(**how)
        assert answer.choices[0].message.content == expected and answer.choices[0].message.role == "assistant"
        assert "".join(part.choices[0].delta.content for part in chats.create(**how, stream=True)) == expected
    with pytest.raises(openai.BadRequestError, match="no chat template"):
        client_of(address).chat.completions.create(**how)


# -- as it is not

BAD = [
    ({"prompt": ""}, 400, "prompt"),
    ({"prompt": []}, 400, "prompt"),
    ({"prompt": [4096]}, 400, "prompt"),
    ({"prompt": [-1]}, 400, "prompt"),
    ({"prompt": [10**30]}, 400, "prompt"),
    ({"prompt": ["a", "b"]}, 400, "prompt"),
    ({"prompt": "a b " * WINDOW}, 400, "prompt"),
    ({"prompt": 5}, 400, "prompt"),
    ({"max_tokens": 0}, 400, "max_tokens"),
    ({"max_tokens": WINDOW}, 400, "max_tokens"),
    ({"max_tokens": "9"}, 400, "max_tokens"),
    ({"temperature": -0.1}, 400, "temperature"),
    ({"temperature": 1e-320}, 400, None),
    ({"top_p": 0}, 400, "top_p"),
    ({"seed": 2**64}, 400, "seed"),
    ({"n": 2}, 400, "n"),
    ({"stop": ["a"] * 5}, 400, "stop"),
    ({"stop": ""}, 400, "stop"),
    ({"logprobs": 3}, 400, "logprobs"),
    ({"model": "gpt-4"}, 404, "model"),
    ({"prompt": "a" * 2_000_000}, 413, None),
]


@pytest.mark.parametrize("fields, status, param", BAD, ids=lambda x: str(x)[:30])
@pytest.mark.parametrize("stream", [False, True])
def test_bad_requests_are_told_what_is_bad(client, fields, status, param, stream):
    with pytest.raises(openai.APIStatusError) as told:
        client.completions.create(**{"model": "tiny", "prompt": "a", "stream": stream} | fields)
    assert (told.value.status_code, told.value.body["param"]) == (status, param)
    assert len(told.value.body["message"]) > 10


@pytest.mark.parametrize("body, status", [(b"{", 400), (b"[]", 400), (b'{"model": "tiny"}', 400), (b"\xff", 400)])
def test_what_is_no_request(address, body, status):
    answer = httpx.post(f"{address}/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status and answer.json()["error"]["message"]


def test_other_ways_to_ask(address):
    assert httpx.get(f"{address}/v1/nothing").status_code == 404
    assert httpx.get(f"{address}/v1/completions").status_code == 405
    ask = {"model": "tiny", "prompt": "a"}
    assert httpx.post(f"{address}/v1/completions", json=ask, headers={"Host": "evil.example"}).status_code == 400
    # what a form of another page can send without asking first is no JSON
    assert httpx.post(f"{address}/v1/completions", content=json.dumps(ask),
                      headers={"Content-Type": "text/plain"}).status_code == 400
    pieces = (b" " * 100_000 for _ in range(30))        # a body that does not say how long it is
    try:
        assert httpx.post(f"{address}/v1/completions", content=pieces).status_code == 413
    except httpx.TransportError:
        pass        # it may hang up before all is sent
    assert idle(address)


def test_one_bad_temperature_ends_one_request(address, model, tokenizer):
    async def both():
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(client.completions.create(
                model="tiny", prompt="a", max_tokens=30, seed=3, temperature=temperature)
                for temperature in (1.0, 1e-320)), return_exceptions=True)
    good, bad = asyncio.run(both())
    assert good.choices[0].text == alone(model, tokenizer, "a", 30, seed=3)
    assert isinstance(bad, openai.BadRequestError) and idle(address)


class Slow(serving.Engine):
    """An engine whose steps take a while, so that a client can leave in between."""

    seconds = 0.02

    def step(self):
        time.sleep(self.seconds)
        return super().step()


def test_whoever_goes_away_leaves_nothing(model, tokenizer):
    with running(app_of(model, tokenizer, engine=Slow(model, 64, 4))) as address:
        ask = {"model": "tiny", "prompt": "a b c", "max_tokens": 120, "seed": 5}
        for _ in client_of(address).completions.create(**ask, stream=True):
            assert health(address)["blocks_held"] > 0
            break                                       # and closes the connection
        started = time.monotonic()
        with pytest.raises(openai.APITimeoutError):
            client_of(address).completions.create(**ask, timeout=0.3)
        with pytest.raises(httpx.ReadTimeout):          # before the first piece of a stream
            httpx.post(f"{address}/v1/completions", json=ask | {"stream": True}, timeout=0.01)
        assert idle(address) and time.monotonic() - started < 120 * Slow.seconds


def test_a_slow_reader_holds_no_block(model, tokenizer):
    with running(app_of(model, tokenizer)) as address:
        with httpx.stream("POST", f"{address}/v1/completions",
                          json={"model": "tiny", "prompt": "a", "max_tokens": 100, "stream": True}) as answer:
            parts = answer.iter_lines()
            next(parts)
            assert idle(address)                        # all is computed, though nobody has read it
            assert list(parts)[-2:] == ["data: [DONE]", ""]


@pytest.mark.parametrize("n, room", [(1000, 1000), (300, 100)])
def test_a_thousand_at_once(model, tokenizer, n, room):
    """All are served where there is room for them; else some are told to come back, and nobody is forgotten."""
    async def ask_all(address):
        limits = httpx.Limits(max_connections=1000)
        async with httpx.AsyncClient(limits=limits, timeout=120) as client:
            return await asyncio.gather(*(client.post(f"{address}/v1/completions", json={
                "model": "tiny", "prompt": [i % 50, 3, 4], "max_tokens": 2, "temperature": 0}) for i in range(n)))
    with running(app_of(model, tokenizer, most_unfinished=room, most=100, budget=400)) as address:
        answers = asyncio.run(ask_all(address))
        assert idle(address)
    served = [(i, answer) for i, answer in enumerate(answers) if answer.status_code == 200]
    busy = [answer for answer in answers if answer.status_code == 503]
    assert len(served) + len(busy) == n and len(served) >= room and bool(busy) == (room < n)
    for answer in busy:
        assert answer.headers["Retry-After"] and "try again" in answer.json()["error"]["message"]
    texts = {i: alone(model, tokenizer, [i, 3, 4], 2, temperature=0) for i in range(50)}
    assert all(answer.json()["choices"][0]["text"] == texts[i % 50] for i, answer in served)


def test_a_step_that_fails_ends_who_is_there_and_no_more(model, tokenizer):
    class Broken(Slow):
        broken = False

        def forward(self, jobs, n):
            if self.broken:
                raise RuntimeError("out of memory")
            return super().forward(jobs, n)
    engine = Broken(model, 64, 4)
    with running(app_of(model, tokenizer, engine=engine)) as address:
        client = client_of(address)
        engine.broken = True
        with pytest.raises(openai.InternalServerError, match="out of memory"):
            client.completions.create(model="tiny", prompt="a")
        engine.broken = False
        parts = client.completions.create(model="tiny", prompt="a", max_tokens=100, stream=True)
        next(parts)
        engine.broken = True
        with pytest.raises(openai.APIError, match="out of memory"):
            list(parts)
        engine.broken = False
        assert client.completions.create(model="tiny", prompt="a", max_tokens=3).choices[0].text
        assert idle(address)


# -- as make serve starts it

@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to a process alone")
def test_the_pocket_model_is_served_and_ctrl_c_ends_it(tokenizer):
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "given.server", "--port", str(port)], cwd=chapters.ROOT,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert f"http://127.0.0.1:{port}/v1" in process.stdout.readline()
        client = client_of(f"http://127.0.0.1:{port}")
        until(lambda: answers(client), 60)
        assert [model.id for model in client.models.list()] == ["pocket"]
        ask = {"model": "pocket", "prompt": "The for statement", "max_tokens": 60, "temperature": 0}
        parts = list(client.completions.create(**ask, stream=True))
        pocket = use_torch_kernels(load_pretrained(server.POCKET, dtype=torch.float32))
        end = tokenizer.encode("<|endoftext|>")
        [new] = generate(pocket, [tokenizer.encode(ask["prompt"])], 60, end, temperature=0)
        assert "".join(part.choices[0].text for part in parts) == tokenizer.decode(new)
        next(iter(client.completions.create(**ask | {"max_tokens": 500}, stream=True)))     # somebody is being served
        process.send_signal(signal.SIGINT)
        assert process.wait(4) in (0, 130, -signal.SIGINT)
        assert "Traceback" not in process.stdout.read()
    finally:
        process.kill()


def answers(client):
    try:
        return client.models.list()
    except openai.APIConnectionError:
        return False


def test_nobody_on_another_machine_can_ask():
    """It listens at this machine's own address alone; no option changes that."""
    said = subprocess.run([sys.executable, "-m", "given.server", "--help"], cwd=chapters.ROOT, text=True,
                          capture_output=True, check=True).stdout
    assert "--port" in said and "--host" not in said
    assert 'host="127.0.0.1"' in (chapters.ROOT / "given/server.py").read_text()


def test_a_folder_that_is_no_checkpoint(tmp_path):
    done = subprocess.run([sys.executable, "-m", "given.server", str(tmp_path)], cwd=chapters.ROOT, text=True,
                          capture_output=True)
    assert done.returncode == 1 and "cannot be served" in done.stderr and "Traceback" not in done.stderr
