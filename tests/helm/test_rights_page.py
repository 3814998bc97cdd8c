"""The page about rights, as far as it can be held without a run: what it gives reasons for is what the chart gives."""

from e2e.chart.test_chart import ELSEWHERE, GUARDED, PAGE, VALUES
from e2e.chart.used_rights import granted_rights, unused_rights
from helm.chart import NAMESPACE, Helm


def test_the_page_has_no_right_that_the_run_is_not_given(helm: Helm) -> None:
    given = {
        right
        for values, namespace in ((VALUES, NAMESPACE), (GUARDED, ELSEWHERE))
        for right in granted_rights(helm.objects(values, namespace=namespace), namespace)
    }
    assert sorted(map(str, unused_rights(PAGE.read_text()).keys() - given)) == []
