import csv


def tallest(path):
    with open(path) as file:
        rows = list(csv.DictReader(file))
    return max(rows, key=lambda row: row["height"])["name"]
