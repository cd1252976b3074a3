"""Says of each configuration whether a JSON Schema accepts it, by a validator that others wrote.

Standard input is a JSON object: "schemas", a directory; "jobs", a list of objects with "text", a configuration, and "main", how the $id of
its schema ends. Standard output is a list with an object for each: "valid", and "errors", the paths and words of what is wrong.
"""
import json
import pathlib
import sys

import jsonschema

work = json.load(sys.stdin)
schemas = {}
for path in sorted(pathlib.Path(work["schemas"]).glob("*.json")):
    schema = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    schemas[schema["$id"]] = schema

# Each pattern means in Python what it means in ECMA 262 as long as it has no \d and no $ before a line's end.
validators = {}
for name in {job["main"] for job in work["jobs"]}:
    main = next(s for i, s in schemas.items() if i.endswith(name))
    resolver = jsonschema.RefResolver(main["$id"], main, store=schemas)
    validators[name] = jsonschema.Draft202012Validator(main, resolver=resolver, format_checker=jsonschema.FormatChecker())

answers = []
for job in work["jobs"]:
    errors = [f"{e.json_path}: {e.message[:120]}" for e in validators[job["main"]].iter_errors(json.loads(job["text"]))]
    answers.append({"valid": not errors, "errors": errors})
json.dump(answers, sys.stdout)
