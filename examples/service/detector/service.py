"""HTTP: `GET /health` says that the model is loaded, `POST /detect` takes rows of grey values from 0 to 1."""

import argparse
import sys
import urllib.request

import torch
import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from . import model

app = FastAPI(title="detector")
network, device = model.load()


class Picture(BaseModel):
    rows: list[list[float]]


@app.get("/health")
def health():
    return {"ok": True, "device": device}


@app.post("/detect")
def detect(picture: Picture):
    if len(picture.rows) != model.SIDE or any(len(row) != model.SIDE for row in picture.rows):
        raise HTTPException(422, f"a picture has {model.SIDE} rows of {model.SIDE} values")
    with torch.inference_mode():
        scores = network(torch.tensor([[picture.rows]], device=device))[0].tolist()
    best = max(range(len(scores)), key=scores.__getitem__)
    return {"class": model.CLASSES[best], "scores": dict(zip(model.CLASSES, scores))}


def self_test():
    answer = detect(Picture(rows=[[0.5] * model.SIDE] * model.SIDE))
    assert abs(sum(answer["scores"].values()) - 1) < 1e-4, answer


def is_healthy(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
        return answer.status == 200


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--health", action="store_true", help="ask a running service whether it works")
    options = parser.parse_args()
    if options.self_test:
        self_test()
    elif options.health:
        sys.exit(not is_healthy(options.port))
    else:
        uvicorn.run(app, host="0.0.0.0", port=options.port)
