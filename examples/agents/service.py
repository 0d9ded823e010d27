"""A FastAPI service: uvicorn service:app, then assay eval ... --agent 'http://.../ask#answer=text'."""

import re
from typing import Any

from fastapi import FastAPI

app = FastAPI()


@app.post("/ask")
def ask(body: dict[str, Any]) -> dict[str, Any]:
    a, b = map(int, re.findall(r"\d+", body["prompt"]))
    return {"text": f"It is {a * b}.", "usage": {"input_tokens": 9, "output_tokens": 3}}
