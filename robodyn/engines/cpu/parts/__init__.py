"""One tree on several threads: parts of the tree, tasks on the parts and their order, and code that runs them."""
