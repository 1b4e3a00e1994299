"""Layers over binmoe.torch: Router, ExpertMLP, MoE, and the losses that keep a router balanced. See docs/nn.md."""

from binmoe.nn.experts import ExpertMLP
from binmoe.nn.losses import load_balancing_loss, router_z_loss
from binmoe.nn.moe import MoE, MoEOutput
from binmoe.nn.router import Router, Routing

__all__ = ["ExpertMLP", "MoE", "MoEOutput", "Router", "Routing", "load_balancing_loss", "router_z_loss"]
