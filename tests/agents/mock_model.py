#!/usr/bin/env python3
"""A scripted model for tests: answers the Responses API on 127.0.0.1 from a scenario file.

    mock_model.py --scenario scenarios/chat.json --port-file P --log L [--gates DIR]

Each model call takes the scenario's next turn. It says nothing on its own, needs no package, and ends when its parent
ends. README.md beside this file describes scenarios and the request log.
"""
import argparse
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Script:
    """The turns, and who has come how far."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        self.turns = data["turns"]
        self.per_thread = data.get("walk", "server") == "thread"
        self.places = {}                 # walker -> [turn, calls of that turn]
        self.lock = threading.Lock()

    def next(self, thread):
        with self.lock:
            place = self.places.setdefault(thread if self.per_thread else "", [0, 0])
            if place[0] >= len(self.turns):
                return None, {"do": [{"say": "The scenario is over."}], "tokens": {"in": 10, "out": 5}}
            number, turn = place[0], self.turns[place[0]]
            place[1] += 1
            times = turn.get("times", 1)
            if times != "forever" and place[1] >= times:
                place[0], place[1] = number + 1, 0
            return number, turn


def filled(value, names):
    """`${name}` in every text of a value."""
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("${%s}" % name, text)
        return value
    if isinstance(value, list):
        return [filled(v, names) for v in value]
    if isinstance(value, dict):
        return {k: filled(v, names) for k, v in value.items()}
    return value


def offered(body):
    """The tools of a request: name -> type. Some models get them in an input item, some in namespaces."""
    todo, found = list(body.get("tools") or []), {}
    for item in body.get("input") or []:
        if isinstance(item, dict) and item.get("type") == "additional_tools":
            todo += item.get("tools") or []
    while todo:
        tool = todo.pop()
        if tool.get("type") == "namespace":
            todo += tool.get("tools") or []
        else:
            found[tool.get("name") or tool.get("type")] = tool.get("type")
    return found


def function(name, arguments, tag):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "id": "fc_" + tag, "call_id": "call_" + tag, "status": "completed",
            "name": name, "arguments": text}


def custom(name, text, tag):
    return {"type": "custom_tool_call", "id": "ct_" + tag, "call_id": "call_" + tag, "status": "completed",
            "name": name, "input": text}


def command(text, extra, tools, tag):
    """Runs a shell command through the tool that the agent offers."""
    if "exec_command" in tools:
        return function("exec_command", dict(extra, cmd=text), tag)
    if tools.get("exec") == "custom":    # the model writes scripts, and commands are calls inside them
        return custom("exec", "text(await tools.exec_command(%s));" % json.dumps(dict(extra, cmd=text)), tag)
    return function("shell", dict(extra, command=["bash", "-lc", text]), tag)


def output_item(spec, tools, tag):
    """One entry of `do` as an item of the Responses API."""
    spec = dict(spec)
    if "say" in spec:
        return {"type": "message", "id": "msg_" + tag, "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": spec["say"], "annotations": []}]}
    if "think" in spec:
        return {"type": "reasoning", "id": "rs_" + tag, "summary": [{"type": "summary_text", "text": spec["think"]}]}
    if "run" in spec:
        return command(spec.pop("run"), spec, tools, tag)
    if "patch" in spec:
        if tools.get("apply_patch") == "custom":
            return custom("apply_patch", spec["patch"], tag)
        return command("apply_patch <<'PATCH'\n%s\nPATCH" % spec["patch"].rstrip("\n"), {}, tools, tag)
    if "tool" in spec:
        item = function(spec["tool"], spec.get("arguments", {}), tag)
        return dict(item, namespace=spec["namespace"]) if "namespace" in spec else item
    return spec["raw"]


class Gone(Exception):
    """The agent hung up."""


class Call(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(404, {"error": {"message": "no such page"}}, {})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if not self.path.split("?")[0].endswith("/responses"):
            return self.answer(404, {"error": {"message": "no such page"}}, {})
        server, began = self.server, time.monotonic()
        n = server.number()
        thread = self.headers.get("thread-id") or self.headers.get("session-id") or body.get("prompt_cache_key") or ""
        self.thread, server.main = thread, server.main or thread
        index, turn = server.script.next(thread)
        turn = filled(turn, {"n": str(n), "gates": server.gates or ""})
        server.note(event="request", n=n, thread=thread, turn=index, model=body.get("model"),
                    key=bool(self.headers.get("authorization")), tools=sorted(offered(body)),
                    last_input=last_text(body))
        self.status, self.tokens, outcome = None, None, "ok"
        try:
            self.play(turn, body, "%s_%d" % (server.ids, n))
        except (Gone, BrokenPipeError, ConnectionResetError):
            outcome = "client_gone"
            self.close_connection = True
        if outcome == "ok" and "fault" in turn:
            outcome = next(iter(turn["fault"]))
        server.note(event="response", n=n, thread=thread, turn=index, status=self.status, outcome=outcome,
                    tokens=self.tokens, ms=int((time.monotonic() - began) * 1000))

    def let_others_finish(self, ms):
        """Ends the conversation that called first after the others: the agent drops what those have not recorded by then."""
        if ms is None:
            return
        server = self.server
        if self.thread != server.main:
            server.others_end.set()
            return
        while not server.others_end.is_set():
            self.pause(0.02)
        self.pause(ms / 1000)

    def play(self, turn, body, tag):
        self.gate(turn.get("gate"))
        self.let_others_finish(turn.get("main_last_ms"))
        self.pause(turn.get("wait_ms", 0) / 1000)
        fault = turn.get("fault", {})
        if "status" in fault:
            message = {"error": {"message": fault.get("message", "scripted"), "code": fault.get("code"), "type": fault.get("type")}}
            self.answer(fault["status"], fault.get("body", message), fault.get("headers", {}))
        elif "failed" in fault:
            self.begin(fault.get("headers", {}))
            self.event("response.created", response={"id": "resp_" + tag})
            self.event("response.failed", response={"id": "resp_" + tag, "status": "failed", "error": fault["failed"]})
            self.end()
        elif fault.get("hang") == "request":
            self.pause(3600)
        elif "drop" in fault and fault["drop"] == "request":
            self.cut(True)
        else:
            self.stream(turn, body, tag, fault)

    def stream(self, turn, body, tag, fault):
        head = {"id": "resp_" + tag, "object": "response", "model": body.get("model"), "output": []}
        self.begin(turn.get("headers", {}))
        self.event("response.created", response=dict(head, status="in_progress"))
        done, tools = [], offered(body)
        for i, spec in enumerate(turn.get("do", [])):
            item = output_item(spec, tools, "%s_%d" % (tag, i))
            self.event("response.output_item.added", output_index=i, item=dict(item, status="in_progress"))
            if item["type"] == "message":
                self.event("response.output_text.delta", item_id=item["id"], output_index=i, content_index=0, delta=spec["say"])
            self.event("response.output_item.done", output_index=i, item=item)
            done.append(item)
        if fault.get("hang") == "stream":
            return self.pause(3600)
        if "drop" in fault:
            return self.cut(fault["drop"] == "reset")
        end = turn.get("end", "completed")
        more = {"incomplete_details": {"reason": "max_output_tokens"}} if end == "incomplete" else {}
        self.event("response." + end, response=dict(head, status=end, output=done, usage=usage(turn), **more))
        self.tokens = turn.get("tokens") and dict({"in": 0, "cached": 0, "out": 0}, **turn["tokens"])
        self.end()

    def gate(self, gate):
        """Tells a test that the turn is reached, and waits until the test lets it go on."""
        if not gate:
            return
        place = lambda name: os.path.join(self.server.gates, name)
        if "reached" in gate:
            with open(place(gate["reached"]), "a", encoding="utf-8") as file:
                file.write("reached\n")
        while "until" in gate and not os.path.exists(place(gate["until"])):
            self.pause(0.02)

    # What HTTP needs.

    def begin(self, headers):
        self.status = 200
        self.send_response(200)
        for name, value in dict({"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}, **headers).items():
            self.send_header(name, str(value))
        self.end_headers()

    def event(self, name, **payload):
        data = ("event: %s\ndata: %s\n\n" % (name, json.dumps(dict(payload, type=name)))).encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end(self):
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def answer(self, status, payload, headers):
        self.status, data = status, json.dumps(payload).encode()
        self.send_response(status)
        for name, value in dict({"Content-Type": "application/json", "Content-Length": len(data)}, **headers).items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)

    def pause(self, seconds):
        """Sleeps, but notices when the agent hangs up."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ready, _, _ = select.select([self.connection], [], [], max(0, min(0.2, until - time.monotonic())))
            if ready and not self.connection.recv(1, socket.MSG_PEEK):
                raise Gone()

    def cut(self, reset):
        if reset:                        # linger 0: the other side sees a reset, not an end of file
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close() if reset else self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_):
        pass

    def finish(self):
        try:
            super().finish()
        except (OSError, ValueError):
            pass


def usage(turn):
    tokens = turn.get("tokens")
    if tokens is None:
        return None
    spent, said = tokens.get("in", 0), tokens.get("out", 0)
    return {"input_tokens": spent, "input_tokens_details": {"cached_tokens": tokens.get("cached", 0)},
            "output_tokens": said, "output_tokens_details": {"reasoning_tokens": tokens.get("reasoning", 0)},
            "total_tokens": spent + said}


def last_text(body):
    """The end of the last thing the model is told, so that a test can see what was handed over."""
    items = [i for i in body.get("input") or [] if isinstance(i, dict)]
    item = items[-1] if items else {}
    content = item.get("content") or item.get("output") or ""
    parts = [content] if isinstance(content, str) else [p.get("text") or "" for p in content if isinstance(p, dict)]
    return "".join(parts)[-400:]


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, options):
        super().__init__(("127.0.0.1", options.port), Call)
        self.main, self.others_end = None, threading.Event()
        self.script, self.gates, self.ids = Script(options.scenario), options.gates, options.ids
        self.lock, self.calls = threading.Lock(), 0
        self.file = open(options.log, "a", encoding="utf-8") if options.log else None

    def number(self):
        with self.lock:
            self.calls += 1
            return self.calls

    def note(self, **record):
        with self.lock:
            if self.file:
                self.file.write(json.dumps(record) + "\n")
                self.file.flush()

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (OSError, ValueError)):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", required=True)
    parser.add_argument("--port", type=int, default=0, help="0 is any free one")
    parser.add_argument("--port-file", help="gets the port, once the server listens")
    parser.add_argument("--log", help="gets two JSON lines per model call")
    parser.add_argument("--gates", help="folder of the files that gates touch and wait for")
    parser.add_argument("--ids", default=os.urandom(4).hex(), help="makes the ids of replies unique over servers")
    options = parser.parse_args()
    server, parent = Server(options), os.getppid()
    if options.port_file:
        with open(options.port_file + ".new", "w", encoding="utf-8") as file:
            file.write("%d\n" % server.server_address[1])
        os.replace(options.port_file + ".new", options.port_file)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    while os.getppid() == parent:        # a test that died must not leave a server behind
        time.sleep(0.2)


if __name__ == "__main__":
    main()
