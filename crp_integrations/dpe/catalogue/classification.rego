# Class of a call under the EU AI Act, tier and controls, from registration, findings and evidence.
# CRP-SPEC-005 §14 (decision D20). Data: controls.json. Input: domain, decides, personal, evidence.
package crp.classification

import rego.v1

# What is not registered is not classified; no default is milder than that.
default ai_act_class := "UNKNOWN"

personal_decision if {
	input.personal
	input.decides
}

entry := data.domains[input.domain]

ai_act_class := entry.with_personal_decisions if {
	entry
	personal_decision
}

ai_act_class := entry.class if {
	entry
	not personal_decision
}

given contains name if {
	some name in input.evidence
	data.evidence[name]
}

met[control.id] := control.needs if {
	some control in data.controls
	every name in control.needs {
		name in given
	}
}

open contains control.id if {
	some control in data.controls
	not met[control.id]
}

iso_42001 := [control.id |
	some control in data.controls
	control.framework == "ISO/IEC 42001"
	met[control.id]
]

# A tier holds when every control that it and the tiers below it name is met.
holds contains place if {
	some place, _ in data.tiers
	every below in array.slice(data.tiers, 0, place + 1) {
		every id in below.controls {
			met[id]
		}
	}
}

default nist_tier := "UNKNOWN"

nist_tier := data.tiers[max(holds)].name if {
	entry
	count(holds) > 0
}

# What the law forbids is never shown (§14.2).
default halts := false

halts if ai_act_class in data.forbidden

verdict := {
	"halts": halts,
	"ai_act_class": ai_act_class,
	"nist_tier": nist_tier,
	"iso_42001": iso_42001,
	"met": met,
	"open": open,
}
