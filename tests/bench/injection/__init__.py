"""Injections that the rules see, and their false alarms over passages of data sets."""
