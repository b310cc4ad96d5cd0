"""Issuers of web tokens: who they are, what their tokens grant, when their keys are fetched."""
