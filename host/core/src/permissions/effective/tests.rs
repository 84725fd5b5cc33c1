use super::*;
use crate::types::risk::Risk;

#[test]
fn a_risk_is_asked_about_if_either_config_asks_about_it() {
    let risks = [None, Some(Risk::Low), Some(Risk::Medium), Some(Risk::High)];
    let mut policies = vec![ConfirmPolicy::Never, ConfirmPolicy::Always];
    for threshold in [Risk::Low, Risk::Medium, Risk::High] {
        for unknown in [false, true] {
            policies.push(ConfirmPolicy::Risky { threshold, unknown });
        }
    }
    let analyzer = Some("rater".into());
    for initial in &policies {
        for today in &policies {
            let rules = |policy: &ConfirmPolicy| ConfirmRules {
                policy: *policy,
                analyzer: analyzer.clone(),
            };
            let effective = rules(initial).narrowed_by(&rules(today));
            for risk in risks {
                assert_eq!(
                    effective.policy.asks(risk),
                    initial.asks(risk) || today.asks(risk),
                    "{initial:?} {today:?} {risk:?}"
                );
            }
            assert_eq!(effective.analyzer, analyzer);
        }
    }
    let other = ConfirmRules {
        policy: ConfirmPolicy::Risky { threshold: Risk::High, unknown: false },
        analyzer: Some("flatterer".into()),
    };
    let initial = ConfirmRules { analyzer: Some("rater".into()), ..other.clone() };
    assert_eq!(initial.narrowed_by(&other).policy, ConfirmPolicy::Always);
}

#[test]
fn the_smaller_limit_holds() {
    let small = PluginLimits { memory: 1, ..PluginLimits::DEFAULT };
    assert_eq!(PluginLimits::DEFAULT.narrowed_by(&small), small);
    assert_eq!(small.narrowed_by(&PluginLimits::DEFAULT), small);
    let limits = |turns| RunLimits { turns, ..RunLimits::default() };
    for (initial, today, effective) in
        [(None, Some(5), Some(5)), (Some(5), None, Some(5)), (Some(5), Some(9), Some(5))]
    {
        assert_eq!(limits(initial).narrowed_by(&limits(today)).turns, effective);
    }
}
