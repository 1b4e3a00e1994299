"""Train a small Mixture-of-Experts classifier on scikit-learn's handwritten digits, on the CPU, in under a minute.

    pip install '.[examples]' && python examples/train_digits.py

Prints loss, accuracy and the share of dropped assignments of each epoch, and saves them as a plot. Every image is a
token; a quarter of the 1797 images is kept for the test. The same seed gives the same losses to the last bit.
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import torch
from binmoe import nn as moe
from sklearn.datasets import load_digits
from tqdm import tqdm

HIDDEN_SIZE = 64
NUM_EXPERTS = 8
TOP_K = 2
BATCH = 128


class Epoch(NamedTuple):
    loss: float  # mean cross entropy of the training batches
    accuracy: float  # of the test images
    dropped: float  # share of the training assignments that found no room


class Classifier(torch.nn.Module):
    """Pixels -> hidden -> hidden + MoE(hidden) -> scores of the ten digits."""

    def __init__(self, num_pixels, num_classes):
        super().__init__()
        self.embed = torch.nn.Linear(num_pixels, HIDDEN_SIZE)
        self.norm = torch.nn.LayerNorm(HIDDEN_SIZE)
        self.moe = moe.MoE(
            moe.Router(HIDDEN_SIZE, NUM_EXPERTS, TOP_K, normalize="after_top_k"),
            moe.ExpertMLP(NUM_EXPERTS, HIDDEN_SIZE, 2 * HIDDEN_SIZE, activation="silu", gated=True),
            capacity_factor=1.0,
        )
        self.head = torch.nn.Linear(HIDDEN_SIZE, num_classes)

    def forward(self, pixels):
        hidden = torch.relu(self.embed(pixels))
        result = self.moe(self.norm(hidden))
        return self.head(hidden + result.out), result


def load(seed):
    """(train pixels, train digits, test pixels, test digits); pixels in [0, 1]."""
    digits = load_digits()
    pixels = torch.from_numpy(digits.data).float() / 16
    labels = torch.from_numpy(digits.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    test = len(labels) // 4
    return pixels[order[test:]], labels[order[test:]], pixels[order[:test]], labels[order[:test]]


def train_epoch(model, optimizer, pixels, labels, order):
    """(loss, dropped share) of one pass in that order."""
    losses, kept, unmasked = [], 0, 0
    model.train()
    for batch in order.split(BATCH):
        scores, result = model(pixels[batch])
        loss = torch.nn.functional.cross_entropy(scores, labels[batch])
        optimizer.zero_grad()
        (loss + 0.01 * result.load_balancing_loss() + 0.001 * result.z_loss()).backward()
        optimizer.step()
        load_of_batch = result.plan.load()
        losses.append(loss.item() * len(batch))
        kept += load_of_batch.kept
        unmasked += load_of_batch.kept + load_of_batch.dropped
    return sum(losses) / len(order), 1 - kept / unmasked


@torch.no_grad()
def accuracy(model, pixels, labels):
    model.eval()
    scores, _ = model(pixels)
    return (scores.argmax(dim=1) == labels).float().mean().item()


def train(seed=0, epochs=30, progress=True):
    """A list of Epoch."""
    torch.manual_seed(seed)
    train_pixels, train_labels, test_pixels, test_labels = load(seed)
    model = Classifier(train_pixels.shape[1], 10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    history = []
    bar = tqdm(range(epochs), desc="train", unit="epoch", disable=not progress)
    for _ in bar:
        order = torch.randperm(len(train_labels))
        loss, dropped = train_epoch(model, optimizer, train_pixels, train_labels, order)
        history.append(Epoch(loss, accuracy(model, test_pixels, test_labels), dropped))
        bar.set_postfix(loss=f"{loss:.3f}", accuracy=f"{history[-1].accuracy:.3f}", dropped=f"{dropped:.1%}")
    return history


def plot(history, path):
    """Loss, test accuracy and dropped share by epoch, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
    for panel, name in zip(panels, Epoch._fields, strict=True):
        panel.plot(range(1, len(history) + 1), [getattr(epoch, name) for epoch in history], color="tab:blue")
        panel.set(title=name, xlabel="epoch")
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(description="Train a small Mixture-of-Experts classifier on handwritten digits.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--plot", type=Path, default=Path("digits.png"), help="where the picture goes")
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # matrices this small gain nothing from a second one
    start = time.perf_counter()
    history = train(arguments.seed, arguments.epochs)
    print("epoch  loss    accuracy  dropped")
    for number, epoch in enumerate(history, 1):
        print(f"{number:5}  {epoch.loss:.4f}  {epoch.accuracy:8.3f}  {epoch.dropped:7.1%}")
    plot(history, arguments.plot)
    print(f"test accuracy {history[-1].accuracy:.3f} after {time.perf_counter() - start:.0f} s; plot: {arguments.plot}")


if __name__ == "__main__":
    main()
