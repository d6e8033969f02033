"""Scans over paths and subtrees, and matrices over pairs of degrees of freedom."""
