"""Which faults in decision code no test notices.

cargo-mutants lists the faults; a seed draws some. All that are drawn are compiled into one build of a copy of the tree,
each behind a number, and the tests run once for each number. So a fault costs a run of the tests and no build. What can't
stand beside the others (a const that a fault changes, an `impl Trait`) is built alone.

docs/mutants.md says how it is run, and what it found.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tree_sitter
import tree_sitter_rust

ROOT = Path(__file__).resolve().parents[2]
# The decision code: what is planned, stepped, settled, audited, resolved and committed.
DECISIONS = [
    "shared/planning/src/**/*.rs",
    "shared/launching/src/{build,fleet,min_values}.rs",
    "shared/state/src/**/*.rs",
    "functions/*/src/{plan,commit}.rs",
    "functions/lifecycle/src/{audit,gone,node,pools,step}.rs",
    "functions/node-classes/src/resolve.rs",
    "functions/provisioner/src/settle/*.rs",
    "agent/src/plan.rs",
    "agent/src/faces/told.rs",
    "shared/domain/src/report.rs",
]
# Where somebody is told, and the methods that do it.
TELLERS = ["functions/*/src/**/*.rs", "shared/{planning,launching,state,domain}/src/**/*.rs"]
TELLS = {"tell", "wait", "unreadable", "log"}
# Whose tests may notice: each crate's own first, then these, the quickest first.
CRATES = [
    "tenon-planning", "tenon-state", "tenon-launching", "tenon-provisioner", "tenon-disruption", "tenon-lifecycle",
    "tenon-interruption", "tenon-node-classes", "tenon-images", "tenon-catalog", "tenon-agent", "tenon-runtime",
    "tenon-testkit", "tenon-cli",
]
# Tests that play seeds aren't asked: only unit tests and scenarios count.
UNASKED = {"sabotage", "first_wakes", "tenon_testkit"}
CHOOSER = '''
/// Whether the fault of this number is the one that is looked at.
#[doc(hidden)]
pub fn mutant(number: u32) -> bool {
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let chosen = || std::env::var("TENON_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    *CHOSEN.get_or_init(chosen) == number
}
'''
CALL = "::tenon_domain::mutant({})"
# Errors that say that the fault itself is no Rust; any other may come of compiling it beside others.
FAULTY_BY_ITSELF = {"E0277", "E0308", "E0369", "E0599", "E0282", "E0283", "E0061", "E0004", "E0600", "E0614"}
LANGUAGE = tree_sitter.Language(tree_sitter_rust.language())


def run(command, cwd, **more):
    return subprocess.run(command, cwd=cwd, text=True, capture_output=True, **more)


def listed(cargo_mutants):
    globs = [part for glob in DECISIONS for part in ("-f", glob)]
    found = run([cargo_mutants, "mutants", "--list", "--json", "--no-config", *globs], ROOT)
    if found.returncode:
        sys.exit(f"cargo-mutants can't list: {found.stderr}")
    return sorted(json.loads(found.stdout), key=lambda mutant: mutant["name"])


def untold():
    """A fault for each place that tells somebody: it doesn't."""
    files = sorted({path for glob in TELLERS for one in braces(glob) for path in ROOT.glob(one) if "tests" not in (*path.parts, path.stem)})
    found = []
    for path in files:
        name = str(path.relative_to(ROOT))
        file = File(path.read_text())
        for node in calls(file.tree.root_node):
            called = node.child_by_field_name("function")
            method = called.child_by_field_name("field") if called.type == "field_expression" else None
            if method is None or method.text.decode() not in TELLS or node.parent.type in ("await_expression", "try_expression"):
                continue
            (line, column), (last, after) = node.start_point, node.end_point
            span = {"start": {"line": line + 1, "column": column + 1}, "end": {"line": last + 1, "column": after + 1}}
            of = f"{name}:{line + 1}: leave out {called.text.decode().split()[-1]}"
            found.append({"name": of, "file": name, "genre": "Untold", "replacement": "()", "span": span})
    return found


def braces(glob):
    inside = re.search(r"\{([^}]*)\}", glob)
    return [glob[: inside.start()] + one + glob[inside.end() :] for one in inside[1].split(",")] if inside else [glob]


def calls(node):
    """Calls outside of tests."""
    for index, child in enumerate(node.children):
        before = node.children[index - 1] if index else None
        if before is not None and before.type == "attribute_item" and b"cfg(test)" in before.text:
            continue
        if child.type == "call_expression":
            yield child
        yield from calls(child)


class File:
    """A file with several faults, each behind its number."""

    def __init__(self, text):
        self.data = text.encode()
        self.lines = text.split("\n")
        self.tree = tree_sitter.Parser(LANGUAGE).parse(self.data)
        # By the span of a node: what is written in its place.
        self.sites = defaultdict(list)

    def offset(self, position):
        before = sum(len(line.encode()) + 1 for line in self.lines[: position["line"] - 1])
        return before + len(self.lines[position["line"] - 1][: position["column"] - 1].encode())

    def span(self, mutant):
        return self.offset(mutant["span"]["start"]), self.offset(mutant["span"]["end"])

    def add(self, number, mutant):
        """Whether the fault can stand beside others."""
        start, end = self.span(mutant)
        genre, to = mutant["genre"], mutant["replacement"]
        node = self.tree.root_node.descendant_for_byte_range(start, end - 1)
        if genre == "FnValue":
            function = enclosing(node, "function_item")
            if "impl " in (mutant["function"]["return_type"] or ""):
                return False
            for one in (child for child in function.children if child.type == "function_modifiers"):
                # What asks for a fault's number isn't const.
                if b"const" in self.data[one.start_byte : one.end_byte].split():
                    self.sites[(one.start_byte, one.end_byte)].append((number, "no const", None))
            self.sites[(start, start)].append((number, "start", to))
            return True
        if self.in_const(node):
            return False
        if genre == "StructField":
            kinds = ("field_initializer", "shorthand_field_initializer")
            while node.type not in kinds:
                node = node.parent
            base = next(child for child in node.parent.children if child.type == "base_field_initializer")
            self.sites[(node.start_byte, node.end_byte)].append((number, "field", base.children[-1]))
            return True
        if genre == "BinaryOperator":
            node = node if node.type in ("binary_expression", "compound_assignment_expr") else node.parent
            if node.type not in ("binary_expression", "compound_assignment_expr"):
                return False
            self.sites[(node.start_byte, node.end_byte)].append((number, "binary", to))
            return True
        if genre == "Untold":
            node = enclosing(node, "call_expression")
            while (node.start_byte, node.end_byte) != (start, end):
                node = enclosing(node.parent, "call_expression")
            self.sites[(start, end)].append((number, "untold", None))
            return True
        if genre == "UnaryOperator":
            node = enclosing(node, "unary_expression")
            self.sites[(node.start_byte, node.end_byte)].append((number, "unary", to))
            return True
        if genre == "MatchArmGuard":
            if b"let " in self.data[start:end]:
                return False
            self.sites[(start, end)].append((number, "value", to))
            return True
        if genre == "MatchArm":
            pattern = enclosing(node, "match_arm").child_by_field_name("pattern")
            condition = pattern.child_by_field_name("condition")
            if condition is None:
                self.sites[(pattern.end_byte, pattern.end_byte)].append((number, "guard", None))
            elif condition.type == "let_chain" or condition.type == "let_condition":
                return False
            else:
                self.sites[(condition.start_byte, condition.end_byte)].append((number, "narrower", None))
            return True
        return False

    def in_const(self, node):
        while node is not None:
            if node.type in ("const_item", "static_item"):
                return True
            if node.type == "function_item":
                modifiers = [child for child in node.children if child.type == "function_modifiers"]
                return any(b"const" in self.data[m.start_byte : m.end_byte].split() for m in modifiers)
            node = node.parent
        return False

    def render(self):
        return self.text(self.tree.root_node)

    def text(self, node, begun=-1, wrap=True):
        """A node's text with its faults. What is put in before `begun` is there already."""
        start, end = node.start_byte, node.end_byte
        before = "" if start == begun else self.put_in(start, "start")
        sites = self.sites.get((start, end), []) if wrap else []
        if sites:
            return before + self.wrapped(node, sites)
        pieces, at = [before], start
        for child in node.children:
            if child.start_byte < child.end_byte:
                pieces.append(self.between(at, child.start_byte))
                pieces.append(self.text(child, start))
                at = child.end_byte
        pieces.append(self.between(at, end))
        return "".join(pieces)

    def between(self, start, end):
        return self.put_in(start, "guard") + self.data[start:end].decode() if start < end else ""

    def put_in(self, place, kind):
        found = [(number, to) for number, one, to in self.sites.get((place, place), []) if one == kind]
        if kind == "start":
            return "".join(f"if {CALL.format(number)} {{ return {to}; }} " for number, to in found)
        return "".join(f" if !{CALL.format(number)}" for number, _ in found)

    def wrapped(self, node, sites):
        of_kind = lambda kind: [(CALL.format(number), to) for number, one, to in sites if one == kind]
        side = lambda one: self.text(one, node.start_byte)
        plain = lambda one: self.data[one.start_byte : one.end_byte].decode()
        binary, unary = of_kind("binary"), of_kind("unary")
        fields = of_kind("field")
        if of_kind("no const"):
            out = " ".join(word for word in plain(node).split() if word != "const")
        elif fields:
            call, base = fields[0]
            name, value = node.children[0], node.children[-1]
            of_base = f"({plain(base)}).{plain(name)}"
            whole = plain(value) if name == value else self.text(value)
            out = f"{plain(name)}: (if {call} {{ {of_base} }} else {{ {whole} }})"
        elif binary:
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            operator = next(child for child in node.children if child.start_byte >= left.end_byte)
            out = f"{side(left)} {plain(operator)} {side(right)}"
            for call, to in binary:
                out = f"if {call} {{ {side(left)} {to} {side(right)} }} else {{ {out} }}"
            out = f"({out})"
        elif unary:
            operand = node.children[-1]
            operator = self.data[node.start_byte : operand.start_byte].decode()
            out = f"(if {unary[0][0]} {{ {side(operand)} }} else {{ {operator}{side(operand)} }})"
        else:
            out = self.text(node, node.start_byte, wrap=False)
        for call, _ in of_kind("untold"):
            out = f"if !{call} {{ {out} }}"
        for call, to in of_kind("value"):
            out = f"(if {call} {{ {to} }} else {{ {out} }})"
        for call, _ in of_kind("narrower"):
            out = f"(!{call} && ({out}))"
        return out


def enclosing(node, kind):
    while node.type != kind:
        node = node.parent
    return node


class Build:
    """The copy of the tree in which faults are compiled."""

    def __init__(self, folder, crates):
        self.tree = folder
        self.crates = crates
        self.env = {**os.environ, "CARGO_INCREMENTAL": "0", "CARGO_TERM_COLOR": "never", "INSTA_UPDATE": "no"}
        # Properties try the same cases for each fault, and none that another fault left behind.
        self.env |= {"PROPTEST_RNG_SEED": "1", "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "true"}

    def prepare(self):
        self.tree.mkdir(parents=True, exist_ok=True)
        files = run(["git", "ls-files", "-z"], ROOT).stdout.split("\0")
        for name in filter(None, files):
            source, copy = ROOT / name, self.tree / name
            if source.exists() and (not copy.exists() or copy.read_bytes() != source.read_bytes()):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy)
        for copy in self.tree.rglob("*.rs"):
            if "target" not in copy.relative_to(self.tree).parts and not (ROOT / copy.relative_to(self.tree)).exists():
                copy.unlink()
        self.append("shared/domain/src/lib.rs", CHOOSER)

    def append(self, name, text):
        path = self.tree / name
        path.write_text((ROOT / name).read_text() + text)

    def write(self, name, text):
        path = self.tree / name
        if path.read_text() != text:
            path.write_text(text)

    def cargo(self, *arguments):
        command = ["cargo", *arguments, "--locked", "--message-format=json"]
        done = run(command, self.tree, env=self.env)
        messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return done.returncode == 0, messages

    def tests(self):
        """Builds all tests and the command line; the errors, and the executables by crate."""
        packages = [part for crate in self.crates for part in ("-p", crate)]
        fine, messages = self.cargo("build", "--lib", "--bins", "--tests", "--keep-going", *packages)
        executables = []
        for message in messages:
            if message.get("reason") == "compiler-artifact" and message.get("executable"):
                name, folder = message["target"]["name"], Path(message["manifest_path"]).parent
                is_command = name == "tenon" and not message["profile"]["test"]
                if is_command or (folder.name != "cli" and name not in UNASKED and message["profile"]["test"]):
                    executables.append(("scenarios" if is_command else name, folder, message["executable"]))
        return fine, messages, executables


def errors(messages):
    for message in messages:
        found = message.get("message", {}) if message.get("reason") == "compiler-message" else {}
        if found.get("level") == "error":
            code = (found.get("code") or {}).get("code")
            for span in found["spans"]:
                if span["is_primary"]:
                    yield code, span["file_name"], span["line_start"], span["line_end"], found["message"]


def put_together(build, drawn, out):
    """Writes all faults but those that are out; the numbers of those that must be built alone."""
    alone = set()
    by_file = defaultdict(list)
    for number, mutant in drawn.items():
        by_file[mutant["file"]].append((number, mutant))
    for name, mutants in by_file.items():
        file = File((ROOT / name).read_text())
        for number, mutant in mutants:
            if number not in out and not file.add(number, mutant):
                alone.add(number)
        build.write(name, file.render())
    return alone


def to_blame(build, messages, drawn):
    """The faults at which errors point."""
    blamed = {}
    for code, name, first, last, text in errors(messages):
        called = re.search(r"non-const [a-z ]*`([^`]+)`", text) if code == "E0015" else None
        if called:
            # Who calls it needs it const.
            of = called[1].split("::<")[0].split("::")[-1]
            blamed |= {n: (code, text) for n, m in drawn.items()
                       if m["genre"] == "FnValue" and m["function"]["function_name"].split("::")[-1] == of}
            continue
        path = build.tree / name
        if not path.exists() or "tenon_domain::mutant(" not in path.read_text():
            continue
        lines = path.read_text().split("\n")
        numbers = [int(n) for line in lines[first - 1 : last] for n in re.findall(r"tenon_domain::mutant\((\d+)\)", line)]
        if code == "E0004":
            # A match isn't exhaustive without one of the arms that follow.
            arms = [int(n) for line in lines[first - 1 :] for n in re.findall(r" if !::tenon_domain::mutant\((\d+)\) =>", line)]
            numbers = arms[:1] or numbers
        before = first - 1
        while not numbers and before > 0:
            before -= 1
            numbers = [int(n) for n in re.findall(r"tenon_domain::mutant\((\d+)\)", lines[before])][-1:]
        for number in numbers:
            blamed.setdefault(number, (code, text))
    return blamed


class Judge:
    """The tests, in the order in which they are asked."""

    def __init__(self, build, executables):
        self.build = build
        self.executables = sorted(executables)
        self.times = {}

    def command(self, test):
        name, folder, path = test
        if name == "scenarios":
            files = sorted(str(file) for file in (self.build.tree / "tests/scenarios").glob("*.yaml"))
            return [path, "scenario", *files], self.build.tree
        return [path, "--quiet"], folder

    def ask(self, test, number, limit):
        command, folder = self.command(test)
        env = {**self.build.env, "TENON_MUTANT": str(number), "CARGO_MANIFEST_DIR": str(folder)}
        try:
            done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return "takes too long"
        if done.returncode == 0:
            return None
        failed = re.findall(r"^test (\S+) \.\.\. FAILED|^---- (\S+) stdout|^(\S+\.yaml)", done.stdout, re.M)
        names = [next(filter(None, found)) for found in failed]
        return names[0] if names else f"ends with {done.returncode}"

    def baseline(self):
        for test in self.executables:
            begun = time.monotonic()
            failed = self.ask(test, 0, 1200)
            if failed:
                sys.exit(f"without any fault {test[0]} fails: {failed}")
            self.times[test[0], str(test[1])] = time.monotonic() - begun

    def order(self, mutant, own_alone):
        """The crate's own tests first, then others, the quickest first."""
        own = self.build.tree / mutant["file"].split("/src/")[0]
        asked = [test for test in self.executables if test[1] == own or not own_alone]
        return sorted(asked, key=lambda test: (test[1] != own, self.times[test[0], str(test[1])]))

    def verdict(self, number, mutant, own_alone):
        for test in self.order(mutant, own_alone):
            limit = max(30, 6 * self.times[test[0], str(test[1])])
            failed = self.ask(test, number, limit)
            if failed:
                return f"{test[0]}: {failed}"
        return None


def mutated(mutant):
    """The file with this fault alone."""
    text = (ROOT / mutant["file"]).read_text()
    file = File(text)
    start, end = file.span(mutant)
    return (file.data[:start] + mutant["replacement"].encode() + file.data[end:]).decode()


def main():
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--sample", type=int, default=300)
    ask.add_argument("--jobs", type=int, default=2)
    ask.add_argument("--folder", type=Path, required=True, help="where the copy of the tree is built")
    ask.add_argument("--cargo-mutants", default="cargo-mutants")
    ask.add_argument("--report", type=Path, help="what was found, as JSON")
    ask.add_argument("--of", action="append", default=[], help="only faults in files whose path begins so")
    ask.add_argument("--own", action="store_true", help="ask only the tests of a fault's own crate: quick, while tests are written")
    ask.add_argument("--again", type=Path, help="a report: only the faults that weren't noticed in it")
    ask.add_argument("--untold", action="store_true", help="only faults that tell nobody, all of them")
    asked = ask.parse_args()
    every = untold() if asked.untold else listed(asked.cargo_mutants)
    everything = [m for m in every if not asked.of or m["file"].startswith(tuple(asked.of))]
    sample = len(everything) if asked.untold else min(asked.sample, len(everything))
    chosen = random.Random(asked.seed).sample(everything, sample)
    if asked.again:
        missed = {name for name, found in json.loads(asked.again.read_text())["noticed"].items() if found is None}
        chosen = [mutant for mutant in everything if mutant["name"] in missed]
    drawn = dict(enumerate(chosen, start=1))
    own = {"tenon-" + Path(mutant["file"].split("/src/")[0]).name for mutant in chosen}
    build = Build(asked.folder / "tree", [crate for crate in CRATES if crate in own or not asked.own])
    build.prepare()
    unviable, out = {}, {}
    for _ in range(40):
        alone = put_together(build, drawn, out)
        fine, messages, executables = build.tests()
        if fine:
            break
        blamed = to_blame(build, messages, drawn)
        blamed = {number: why for number, why in blamed.items() if number not in out}
        if not blamed:
            sys.exit("the faults don't compile: " + "\n".join(str(error) for error in list(errors(messages))[:10]))
        print(f"{len(blamed)} faults don't compile beside the others", flush=True)
        out.update(blamed)
    for number, (code, text) in out.items():
        if code in FAULTY_BY_ITSELF and drawn[number]["genre"] in ("FnValue", "MatchArm"):
            unviable[number] = text
        else:
            alone.add(number)
    print(f"{len(drawn)} of {len(everything)} faults: {len(drawn) - len(out) - len(alone - set(out))} in one build, "
          f"{len(alone)} alone, {len(unviable)} are no Rust", flush=True)
    judge = Judge(build, executables)
    judge.baseline()
    print("whole code passes: " + ", ".join(f"{name} {took:.1f} s" for (name, _), took in judge.times.items()), flush=True)
    verdicts = {}

    def report():
        if asked.report:
            rows = {drawn[number]["name"]: verdict for number, verdict in sorted(list(verdicts.items()))}
            asked.report.write_text(json.dumps({"noticed": rows, "unviable": [drawn[n]["name"] for n in unviable]}, indent=1))

    def look(number):
        verdicts[number] = judge.verdict(number, drawn[number], asked.own)
        print(f"{number:4} {drawn[number]['name']}: {verdicts[number] or 'NOT NOTICED'}", flush=True)
        report()

    together = [number for number in drawn if number not in alone and number not in unviable]
    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(look, together))
    for number in sorted(alone):
        mutant = drawn[number]
        put_together(build, {n: m for n, m in drawn.items() if m["file"] == mutant["file"]}, drawn)
        build.write(mutant["file"], mutated(mutant))
        fine, messages, executables = build.tests()
        if fine:
            judge.executables = sorted(executables)
            look(number)
        else:
            unviable[number] = next(iter(errors(messages)), ("", "", "", "", "?"))[4]
        build.write(mutant["file"], (ROOT / mutant["file"]).read_text())
    missed = [number for number, verdict in verdicts.items() if verdict is None]
    viable = len(verdicts)
    print(f"\nseed {asked.seed}: {len(drawn)} drawn of {len(everything)}, {viable} viable, {viable - len(missed)} noticed "
          f"({100 * (viable - len(missed)) / max(viable, 1):.1f} %), {len(unviable)} no Rust")
    for number in sorted(missed):
        print(f"not noticed: {drawn[number]['name']}")
    report()


if __name__ == "__main__":
    main()
