"""Small dense quadratic programmes, one after another: a dual active set as loops."""
