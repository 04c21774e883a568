"""Audit, webhooks, metrics, traces and logs."""
