"""Reading robot files, editing and writing models, and converting to conventions of other libraries."""
