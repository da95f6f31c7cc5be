#!/usr/bin/env python3
"""proto/MODEL.md is true: every example is read, and predicts what it expects; every field of proto/model.proto is told of.

usage: model_document.py LIVESET PROTO_FOLDER
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def check_examples(liveset, document):
    examples = re.findall(r"^```(textproto|json)\n(.*?)^```", document, re.DOTALL | re.MULTILINE)
    forms, wrong = set(), []
    with tempfile.TemporaryDirectory() as folder:
        for number, (language, text) in enumerate(examples):
            path = pathlib.Path(folder) / f"{number}.model"
            path.write_text(text)
            forms.update(re.findall(r'^"?(chain|graph|general|mlp|transformer|rotor_chain)\b', text.replace(' "', '"'), re.MULTILINE))
            done = subprocess.run([liveset, "predict", path, "--expect"], capture_output=True, text=True)
            print(number, done.stdout)
            if done.returncode != 0:
                wrong.append(f"{text}\n{done.stdout}{done.stderr}")
    assert forms == {"chain", "graph", "general", "mlp", "transformer", "rotor_chain"}, forms
    return wrong


def check_fields(document, schema):
    schema = re.sub(r"//.*", "", schema)
    fields = set(re.findall(r"^\s*(?:optional |repeated )?\w+ (\w+) = \d+;", schema, re.MULTILINE))
    assert len(fields) > 100, fields
    return [f"{field} is not told of" for field in sorted(fields) if not re.search(rf"\b{field}\b", document)]


def main():
    folder = pathlib.Path(sys.argv[2])
    document = (folder / "MODEL.md").read_text()
    wrong = check_examples(sys.argv[1], document) + check_fields(document, (folder / "model.proto").read_text())
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
