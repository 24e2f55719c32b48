#!/usr/bin/env python3
"""Recomputes a run's fingerprint with nothing but Python's standard library and git.

    agentrun fingerprint TASK --json | python3 docs/fingerprint.py
    agentrun fingerprint TASK --json | python3 docs/fingerprint.py --git . [--include-dirty]

Without --git the hashes are recomputed from what the document lists. With it the lists of files are not believed
either: they are made anew from the repository, and every blob is read and hashed. Prints what it computed, and ends with
1 when anything is not what the document says. docs/fingerprint.md says the same in words.
"""

import argparse
import hashlib
import json
import os
import re
import stat
import subprocess
import sys

# Uncommitted changes here never count for a run in a copy of its own.
OWN_PATHS = [b"automation-policy.yml", b"policies/", b"tasks/", b"prompts/", b".ai-runs/"]
OWN_PATHS_IN_PLACE = [b".ai-runs/"]


class Encoder:
    """Name and value carry their lengths; absent, a text and a list differ by one byte."""

    def __init__(self, domain):
        self.hash = hashlib.sha256()
        self._bytes(domain.encode())

    def _bytes(self, data):
        self.hash.update(len(data).to_bytes(8, "big"))
        self.hash.update(data)

    def field(self, name, value):
        self._bytes(name.encode())
        if value is None:
            self.hash.update(b"\x00")
        else:
            self.hash.update(b"\x01")
            self._bytes(value.encode())

    def list(self, name, items):
        self._bytes(name.encode())
        self.hash.update(b"\x02" + len(items).to_bytes(8, "big"))
        for item in items:
            self._bytes(item)

    def hex(self):
        return self.hash.hexdigest()


def files_hash(files):
    """`files`: dictionaries with path, mode and blob."""
    order = sorted(files, key=lambda f: (f["path"].encode(), f["mode"].encode(), f["blob"].encode()))
    encoder = Encoder("agentrun-files/1")
    encoder.list("files", [f"{f['mode']} {f['blob']} {f['path']}".encode() for f in order])
    return encoder.hex()


def context_hash(meaning, files, rules):
    encoder = Encoder("agentrun-context/1")
    encoder.field("task", meaning)
    encoder.field("files", files_hash(files))
    encoder.field("rules", files_hash(rules))
    return encoder.hex()


def fingerprint(components):
    encoder = Encoder("agentrun-fp/1")
    for name in ["task", "base_commit", "prompt_version", "context_hash", "mode", "policy_version"]:
        encoder.field(name, components[name])
    return encoder.hex()


# --- from git ------------------------------------------------------------------------------------------------------


def git(folder, *arguments, data=None):
    return subprocess.run(["git", "-C", folder, *arguments], input=data, capture_output=True, check=True).stdout


def glob_pattern(glob):
    """A glob as a regular expression over bytes: `*` and `?` stop at `/`, `**` between slashes does not."""
    text, out, depth, i = glob.encode(), b"", 0, 0
    while i < len(text):
        c, rest = text[i : i + 1], text[i:]
        if text == b"**":
            return re.compile(rb".*\Z", re.S)
        if rest.startswith(b"**/") and i == 0:
            out, i = out + rb"(?:/?|.*/)", i + 3
        elif rest == b"/**":
            out, i = out + rb"/.*", i + 3
        elif rest.startswith(b"/**/"):
            out, i = out + rb"(?:/|/.*/)", i + 4
        elif c == b"*":
            out, i = out + rb"[^/]*", i + 1
        elif c == b"?":
            out, i = out + rb"[^/]", i + 1
        elif c == b"[":
            end = text.index(b"]", i + 2 + (text[i + 1 : i + 2] in (b"!", b"^")))
            inner = text[i + 1 : end]
            negated = inner[:1] in (b"!", b"^")
            inner = re.sub(rb"[\\\]\[^]", rb"\\\g<0>", inner[1:] if negated else inner)
            out, i = out + b"[" + (b"^" if negated else b"") + inner + b"]", end + 1
        elif c == b"{":
            out, i, depth = out + rb"(?:", i + 1, depth + 1
        elif c == b"}" and depth:
            out, i, depth = out + rb")", i + 1, depth - 1
        elif c == b"," and depth:
            out, i = out + rb"|", i + 1
        elif c == b"\\" and i + 1 < len(text):
            out, i = out + re.escape(text[i + 1 : i + 2]), i + 2
        else:
            out, i = out + re.escape(c), i + 1
    return re.compile(out + rb"\Z", re.S)


def path_text(path):
    """Bytes that are no UTF-8 are written as \\xNN."""
    return path.decode("utf-8", "surrogateescape").encode("utf-8", "agentrun").decode()


def show_byte(error):
    escaped = "".join(f"\\x{ord(c) - 0xDC00:02x}" for c in error.object[error.start : error.end])
    return escaped, error.end


def tree(folder, commit):
    """Every file of a commit: path to (mode, id). A submodule has mode 160000 and the id of its commit."""
    found = {}
    for entry in git(folder, "ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")[:-1]:
        head, path = entry.split(b"\t", 1)
        mode, _, blob = head.split(b" ")
        found[path] = (mode.decode(), blob.decode())
    return found


def check_blobs(folder, ids):
    """Reads blobs and hashes them: git's id is SHA-1 over `blob`, the length and the bytes."""
    ids = sorted(ids)
    answer = git(folder, "cat-file", "--batch", data="".join(f"{i}\n" for i in ids).encode())
    for blob in ids:
        head, answer = answer.split(b"\n", 1)
        size = int(head.split(b" ")[2])
        content, answer = answer[:size], answer[size + 1 :]
        if blob_id(content) != blob:
            sys.exit(f"blob {blob} does not have the contents of its id")


def blob_id(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def uncommitted(folder, own):
    """Every uncommitted path as it is on disk: path to (mode, id), (000000, deleted) for what is gone."""
    found = {}
    root = os.fsencode(git(folder, "rev-parse", "--show-toplevel").rstrip(b"\n"))
    status = git(folder, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
    for entry in status.split(b"\0")[:-1]:
        path = entry[3:]
        if any(path == prefix or (prefix.endswith(b"/") and path.startswith(prefix)) for prefix in own):
            continue
        at = os.path.join(root, path)
        try:
            mode = os.lstat(at).st_mode
        except FileNotFoundError:
            found[path] = ("000000", "deleted")
            continue
        if stat.S_ISLNK(mode):
            found[path] = ("120000", blob_id(os.readlink(at)))
        else:
            with open(at, "rb") as file:
                found[path] = ("100755" if mode & 0o100 else "100644", blob_id(file.read()))
    return found


def files_of(globs, committed, changed):
    patterns = [glob_pattern(glob) for glob in globs]
    wanted = lambda path: any(pattern.match(path) for pattern in patterns)
    found = {path: entry for path, entry in committed.items() if wanted(path)}
    found.update({path: entry for path, entry in changed.items() if wanted(path)})
    return found


def listed(found):
    return [{"path": path_text(path), "mode": mode, "blob": blob} for path, (mode, blob) in found.items()]


def from_git(folder, meaning, commit, include_dirty):
    task = json.loads(meaning)
    own = OWN_PATHS_IN_PLACE if task["workspace"] == "in-place" else OWN_PATHS
    committed = tree(folder, commit)
    changed = uncommitted(folder, own) if include_dirty else {}
    files = files_of(task["context"]["files"], committed, changed)
    rules = files_of(task["context"]["rules"], committed, changed)
    check_blobs(folder, {committed[p][1] for p in [*files, *rules] if p in committed and committed[p][0] != "160000"})
    # What was not committed counts as a whole, whatever the globs say.
    files.update(changed)
    return listed(files), listed(rules)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--git", metavar="DIR", help="make the lists of files anew from this repository")
    parser.add_argument("--include-dirty", action="store_true", help="as for agentrun")
    options = parser.parse_args()
    document = json.load(sys.stdin)
    if document["schema"] != "agentrun/fingerprint/1":
        sys.exit(f"this is {document['schema']}, not agentrun/fingerprint/1: {document.get('message', '')}")
    components = {c["name"]: c["value"] for c in document["components"]}
    context = document["context"]
    files, rules = context["files"], context["rules"]
    faults = []
    if options.git:
        files, rules = from_git(options.git, context["task"], components["base_commit"], options.include_dirty)
        by_path = lambda entries: sorted(entries, key=lambda f: f["path"])
        for name, made in [("files", files), ("rules", rules)]:
            if by_path(made) != by_path(context[name]):
                faults.append(f"{name}: the document lists {by_path(context[name])}, git says {by_path(made)}")

    computed_context = context_hash(context["task"], files, rules)
    computed = fingerprint({**components, "context_hash": computed_context})
    print(f"context_hash sha256:{computed_context}")
    print(f"fingerprint  sha256:{computed}")
    if document["context_hash"] != f"sha256:{computed_context}":
        faults.append(f"context_hash: the document says {document['context_hash']}")
    if document["fingerprint"] != f"sha256:{computed}":
        faults.append(f"fingerprint: the document says {document['fingerprint']}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    import codecs

    codecs.register_error("agentrun", show_byte)
    sys.exit(main())
