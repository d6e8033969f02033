"""Other people's programs that judge ours: the same questions, asked in our conventions, answered by them."""
