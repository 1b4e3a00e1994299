"""What a level reports."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    kernel: str
    case: str
    level: str
    passed: bool
    detail: str = ""
