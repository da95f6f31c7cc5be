"""What cannot be done, in one line."""


class Failure(Exception):
    def __init__(self, status, what, hint=""):
        super().__init__(what)
        self.status, self.what, self.hint = status, what, hint

    def text(self):
        text = self.what + (f" ({self.hint})" if self.hint else "")
        return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
