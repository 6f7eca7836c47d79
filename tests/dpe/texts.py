"""Passages of our own writing with figures, dates, names, negations and conditions."""

from __future__ import annotations

from crp_integrations.language.text import split_sentences

HARBOUR = (
    "The harbour of Lindmouth handled 4,200,000 tonnes of freight in 2023. "
    "Its north pier was opened on 2024-03-12 by the engineer Clara Voss. "
    "The pier does not serve passenger ships. "
    "Freight grew by 15% compared with 2022. "
    "The port authority, Lindmouth Harbour Trust, employs 640 people and earned $18.5 million. "
    "Night work was conditionally approved pending a noise survey by the county."
)
LIBRARY = (
    "The Arden Library holds 310,000 volumes and 42 manuscripts from the 14th century. "
    "It was founded in 1871 by Edmund Hale, a paper merchant from Bristol. "
    "Readers may borrow rare books only if a librarian is present. "
    "The reading room is open from 9:00 to 18:00 and has 120 seats. "
    "According to the National Archives, its catalogue was never printed. "
    "A fire destroyed 5 km of shelves in the east wing in November 1932."
)
MEDICINE = (
    "Tavorel lowers blood pressure by 12 mmHg on average, according to a trial of 860 patients. "
    "The usual dose is 50 mg twice daily with food. "
    "It must not be taken during pregnancy. "
    "The European Medicines Agency approved the tablet on 7 May 2019. "
    "Side effects were reported by 8% of patients in the trial led by Professor Inga Moritz. "
    "Treatment is stopped if the patient develops a rash."
)
SPACE = (
    "The probe Meridian 4 left Earth orbit in August 2016 and reached Ceres in March 2021. "
    "It carries 3 cameras, weighs 1,250 kg and was built by Halden Aerospace in Toulouse. "
    "The probe has not found water on the surface. "
    "Its antenna failed in 2020, but engineers under Dr. Samuel Okoro restored it within 9 days. "
    "The mission cost 740 million euros, which is 60 million less than planned. "
    "Data are sent at 2 Mbps unless the Sun stands between the probe and Earth."
)
TEXTS = (HARBOUR, LIBRARY, MEDICINE, SPACE)
# One fact a sentence, as cosine wants them.
SENTENCES = tuple(span.of(text) for text in TEXTS for span in split_sentences(text))
