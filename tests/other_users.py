"""What the tests of the cache of machine code beside other users have in common."""

KEY = "0123456789abcdef0123456789abcdef01234567"
CODE, POISON = b"code of this user" * 500, b"code of another user" * 500
OTHER = 65534
"""The user that most systems call nobody."""
