# Cases of classification.rego: what is registered and found, and what must be in the verdict.
package crp.classification_test

import rego.v1

asked(domain, decides, personal, evidence) := {
	"domain": domain,
	"decides": decides,
	"personal": personal,
	"evidence": evidence,
}

cases := {
	"biometric identification is forbidden": {
		"input": asked("biometric-identification", false, false, []),
		"want": {"ai_act_class": "UNACCEPTABLE", "halts": true},
	},
	"employment is high": {
		"input": asked("employment", false, false, []),
		"want": {"ai_act_class": "HIGH", "halts": false},
	},
	"access to education is high": {
		"input": asked("education-access", false, false, []),
		"want": {"ai_act_class": "HIGH", "halts": false},
	},
	"critical infrastructure is high": {
		"input": asked("critical-infrastructure", false, false, []),
		"want": {"ai_act_class": "HIGH", "halts": false},
	},
	"general information is limited": {
		"input": asked("general-information", false, true, []),
		"want": {"ai_act_class": "LIMITED", "halts": false},
	},
	"decisions with personal data make it high": {
		"input": asked("general-information", true, true, []),
		"want": {"ai_act_class": "HIGH", "halts": false},
	},
	"what is creative is minimal": {
		"input": asked("creative", true, true, []),
		"want": {"ai_act_class": "MINIMAL", "halts": false},
	},
	"what is not registered is unknown": {
		"input": asked("", true, true, []),
		"want": {"ai_act_class": "UNKNOWN", "nist_tier": "UNKNOWN", "halts": false},
	},
	"a domain that nobody knows is unknown": {
		"input": asked("astrology", false, false, []),
		"want": {"ai_act_class": "UNKNOWN", "nist_tier": "UNKNOWN", "halts": false},
	},
	"evidence that the catalogue does not name meets nothing": {
		"input": asked("creative", false, false, ["trust-me"]),
		"want": {"met": {}, "iso_42001": []},
	},
}
