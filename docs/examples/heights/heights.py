"""Heights of towers, in metres."""


def median(heights):
    """Return the height in the middle; of an even number, the mean of the two there."""
    ordered = sorted(heights)
    middle = len(ordered) // 2
    return ordered[middle]
