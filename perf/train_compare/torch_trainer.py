#!/usr/bin/env python3
"""A training run in PyTorch that does the work of one `tutti train`, for comparing the two.

One process of it is one rank; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which. The model is
Llama's, its shape is read from a config.json; AdamW, clipping and the cosine are as in run.toml's
defaults. Rank 0 prints one line of JSON: step times, losses, the number of parameters.

Written as one writes it for PyTorch 1.13 on processors: q, k and v in one product, so gate and up;
the mask and the rotary angles are computed once; optimizer loops over tensors at once (foreach);
DistributedDataParallel sends buckets while backward runs, and gradients lie in them
(gradient_as_bucket_view). Needs torch; knows nothing of Tutti.
"""
import argparse
import json
import math
import os
import pathlib
import time

import numpy
import torch
import torch.distributed
from torch import nn
from torch.nn import functional


class RMSNorm(nn.Module):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x):
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (wide * scale).to(x.dtype) * self.weight.to(x.dtype)


def rotary_tables(sequence, head_size, theta):
    """Cosines and sines for the form that turns the first half of a head against the second."""
    rates = theta ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
    angles = torch.outer(torch.arange(sequence, dtype=torch.float64), rates)
    angles = torch.cat((angles, angles), dim=-1).float()
    return angles.cos(), angles.sin()


def rotate(x, cosines, sines):
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.size = config["head_dim"]
        columns = (self.heads + 2 * self.kv_heads) * self.size
        self.qkv = nn.Linear(config["hidden_size"], columns, bias=False)
        self.out = nn.Linear(self.heads * self.size, config["hidden_size"], bias=False)

    def forward(self, x, tables, mask):
        batch, sequence, _ = x.shape
        heads = self.qkv(x).view(batch, sequence, -1, self.size).transpose(1, 2)
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        q, k = rotate(q, *tables), rotate(k, *tables)
        # Query heads of one group stand behind each other, so that no key is copied.
        group = self.heads // self.kv_heads
        q = q.reshape(batch, self.kv_heads, group * sequence, self.size)
        scores = torch.matmul(q * self.size ** -0.5, k.transpose(-2, -1))
        scores = scores.view(batch, self.kv_heads, group, sequence, sequence) + mask
        weights = scores.softmax(dim=-1)
        y = torch.matmul(weights.view(batch, self.kv_heads, group * sequence, sequence), v)
        y = y.view(batch, self.heads, sequence, self.size).transpose(1, 2)
        return self.out(y.reshape(batch, sequence, -1))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention, self.mlp = Attention(config), Mlp(config)
        self.before_attention = RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        self.before_mlp = RMSNorm(config["hidden_size"], config["rms_norm_eps"])

    def forward(self, x, tables, mask):
        x = x + self.attention(self.before_attention(x), tables, mask)
        return x + self.mlp(self.before_mlp(x))


class Model(nn.Module):
    def __init__(self, config, sequence, dtype):
        super().__init__()
        hidden, vocabulary = config["hidden_size"], config["vocab_size"]
        layers = config["num_hidden_layers"]
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList(Block(config) for _ in range(layers))
        self.norm = RMSNorm(hidden, config["rms_norm_eps"])
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.dtype = dtype
        cosines, sines = rotary_tables(sequence, config["head_dim"], config["rope_theta"])
        mask = torch.full((sequence, sequence), -math.inf).triu(1)
        for name, table in (("cosines", cosines), ("sines", sines), ("mask", mask)):
            setattr(self, name, table.to(dtype))  # equal on all ranks: nothing to send
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue
            shrinks = name.endswith(("out.weight", "down.weight"))
            deviation = config["initializer_range"] / (math.sqrt(2 * layers) if shrinks else 1)
            nn.init.normal_(parameter, std=deviation)

    def forward(self, tokens, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            x = self.embedding(tokens).to(self.dtype)
            for block in self.blocks:
                x = block(x, (self.cosines, self.sines), self.mask)
            logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.float().view(-1, logits.shape[-1]),
                                        targets.reshape(-1))


class Batches:
    """Windows of the corpus in a random order; each rank takes its rows of every global batch."""

    def __init__(self, path, sequence, rows, seed):
        data = numpy.frombuffer(pathlib.Path(path).read_bytes(), dtype=numpy.uint8)
        self.data = torch.from_numpy(data[:int(0.9 * len(data))].astype(numpy.int64))
        self.sequence, self.rows = sequence, rows
        windows = (len(self.data) - 1) // sequence
        self.order = torch.randperm(windows, generator=torch.Generator().manual_seed(seed))

    def take(self, step, rank, world):
        first = (step * world + rank) * self.rows
        starts = [int(self.order[(first + row) % len(self.order)]) * self.sequence
                  for row in range(self.rows)]
        windows = torch.stack([self.data[s:s + self.sequence + 1] for s in starts])
        return windows[:, :-1], windows[:, 1:]


def learning_rate(options, step):
    if step < options.warmup:
        return options.lr * (step + 1) / options.warmup
    progress = (step - options.warmup) / max(1, options.steps - options.warmup)
    return options.lr * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))


def make_optimizer(model, options):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                              {"params": others, "weight_decay": 0.0}],
                             lr=options.lr, betas=(0.9, 0.95), eps=1e-8, foreach=True)


def train(options, rank, world):
    """(seconds of each step, loss of each step as rank 0 sees it, number of parameters)"""
    torch.manual_seed(options.seed)
    config = json.loads(pathlib.Path(options.model).read_text(encoding="utf-8"))
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    plain = Model(config, options.sequence, dtype)
    model = nn.parallel.DistributedDataParallel(plain, gradient_as_bucket_view=True)
    optimizer = make_optimizer(model, options)
    batches = Batches(options.corpus, options.sequence, options.rows, options.seed)
    times, losses = [], []
    for step in range(options.steps):
        begin = time.perf_counter()
        tokens, targets = batches.take(step, rank, world)
        optimizer.zero_grad(set_to_none=True)
        loss = model(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(options, step)
        optimizer.step()
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / world)
        times.append(time.perf_counter() - begin)
    return times, losses, sum(p.numel() for p in plain.parameters())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a config.json")
    parser.add_argument("--corpus", required=True, help="a file; its bytes are the tokens")
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--rows", type=int, default=8, help="of each rank and step")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--warmup", type=int, default=5, help="steps of the learning rate")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    if hasattr(os, "sched_setaffinity"):
        cpus = sorted(os.sched_getaffinity(0))
        if world <= len(cpus):
            os.sched_setaffinity(0, {cpus[rank]})
    times, losses, parameters = train(options, rank, world)
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "parameters": parameters, "times": times,
                          "losses": losses}), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
