"""Exports trained policies: as a Python file that needs NumPy alone, or as an ONNX model."""

from thespis.export.writer import export

__all__ = ["export"]
