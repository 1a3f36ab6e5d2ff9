"""Trained policies for elsewhere: a Python file that needs NumPy alone, or an ONNX model."""

from thespis.export.writer import export

__all__ = ["export"]
