"""Queries by scans."""
