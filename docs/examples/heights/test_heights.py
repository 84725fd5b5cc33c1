import unittest

from heights import median


class Median(unittest.TestCase):
    def test_odd(self):
        self.assertEqual(median([48, 21, 33]), 33)

    def test_even(self):
        self.assertEqual(median([48, 21, 33, 35]), 34)
